// Environment variables, read when first needed and never at import (docs/environment.md lists them).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tcim_lite {

// Unset and empty are the same.
std::optional<std::string> env_text(const char* name);

// A whole number in [low, high]; anything else is an Error that names the variable, its value and the range.
std::optional<int64_t> env_int(const char* name, int64_t low, int64_t high);

// Whether the variable is `yes`; unset, empty and `no` are false, anything else is an Error that names all of it.
bool env_is(const char* name, const char* yes, const char* no);

// Logs a warning for each variable that begins as ours do and is none, with the one that may have been meant.
void warn_of_unknown_variables();

}  // namespace tcim_lite
