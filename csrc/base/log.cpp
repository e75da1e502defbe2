#include "base/log.h"

#include <cstdio>

#include "base/env.h"
#include "base/error.h"

namespace tcim_lite {
namespace {

LogLevel threshold() {
  const std::string name = env_text("TCIM_LITE_LOG").value_or("warn");
  if (name == "error") return LogLevel::Error;
  if (name == "info") return LogLevel::Info;
  if (name == "debug") return LogLevel::Debug;
  if (name != "warn") {
    std::fprintf(stderr, "tcim_lite warning: TCIM_LITE_LOG='%s': expected error, warn, info or debug; warn is used\n",
                 name.c_str());
  }
  return LogLevel::Warn;
}

}  // namespace

void log(LogLevel level, const std::string& message) {
  static const LogLevel limit = threshold();
  static constexpr const char* kNames[] = {"error", "warning", "info", "debug"};
  if (level > limit) return;
  std::fprintf(stderr, "tcim_lite %s: %s\n", kNames[static_cast<int>(level)], without_nul(message).c_str());
}

}  // namespace tcim_lite
