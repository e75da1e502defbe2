#include "base/json_text.h"

#include <cstdio>

namespace tcim_lite {

std::string json_quoted(std::string_view text) {
  std::string made = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      made += '\\';
      made += c;
    } else if (c == '\n') {
      made += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", unsigned(c));
      made += escape;
    } else {
      made += c;
    }
  }
  return made + '"';
}

}  // namespace tcim_lite
