// Reads the part of TOML 1.0 that our settings files use (docs/fault-injection.md, "The file"): tables, arrays of
// tables, and keys with one string, integer, float or boolean each. What else TOML has is refused by name, so a file
// that is read here means the same to every other TOML reader.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"

namespace tcim_lite {

struct TomlValue {
  std::variant<std::string, int64_t, double, bool> value;
  int line = 0;
};

// What [name] or [[name]] begins; the first one has no name and the keys above every header.
struct TomlTable {
  std::string name;
  bool repeated = false;  // [[name]]
  int line = 1;
  std::vector<std::pair<std::string, TomlValue>> entries;  // in the order of the file, each key once
};

// Throws Error(`code`) that begins with "`file`:line: ". Text is UTF-8, at most `most_tables` tables.
std::vector<TomlTable> parse_toml(std::string_view text, const std::string& file, ErrorCode code,
                                  size_t most_tables = 1000);

// "a string", "an integer", ...
const char* kind_name(const TomlValue& value);

}  // namespace tcim_lite
