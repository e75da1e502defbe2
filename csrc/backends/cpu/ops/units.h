// Counts in whole units.
#pragma once

#include <cstdint>

namespace tcim_lite::cpu {

constexpr int64_t parts_of(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }
constexpr int64_t round_up(int64_t value, int64_t unit) { return parts_of(value, unit) * unit; }

}  // namespace tcim_lite::cpu
