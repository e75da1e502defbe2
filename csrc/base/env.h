// Environment variables, read when first needed and never at import (docs/environment.md lists them).
#pragma once

#include <cstdint>
#include <initializer_list>
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

// Notes that this process has read these for good: what they are set to from now on has no effect.
void env_is_settled(std::initializer_list<const char*> names);

// Logs a warning, once, for each settled variable that has been set to something else since.
void warn_of_late_variables();

}  // namespace tcim_lite
