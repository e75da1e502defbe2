// Text as JSON.
#pragma once

#include <string>
#include <string_view>

namespace tcim_lite {

// In quotes, escaped. Bytes beyond ASCII are kept, because names are usually UTF-8.
std::string json_quoted(std::string_view text);

}  // namespace tcim_lite
