// The emulator's log: standard error, level from TCIM_LITE_LOG (error, warn, info, debug; default warn).
#pragma once

#include <string>

namespace tcim_lite {

enum class LogLevel { Error, Warn, Info, Debug };

void log(LogLevel level, const std::string& message);

}  // namespace tcim_lite
