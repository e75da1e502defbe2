// kernels/vector/functions.h over one float.
#pragma once

#include <cmath>

#include "backends/cpu/reference/element.h"

namespace tcim_lite::cpu {
namespace {

struct Lane {
  float v;
};

inline Lane like(Lane, float value) { return {value}; }
inline Lane operator+(Lane a, Lane b) { return {a.v + b.v}; }
inline Lane operator-(Lane a, Lane b) { return {a.v - b.v}; }
inline Lane operator*(Lane a, Lane b) { return {a.v * b.v}; }
inline Lane operator/(Lane a, Lane b) { return {a.v / b.v}; }
inline Lane operator-(Lane a) { return {-a.v}; }
inline Lane fma(Lane a, Lane b, Lane c) { return {std::fmaf(a.v, b.v, c.v)}; }
inline Lane abs(Lane a) { return {std::fabs(a.v)}; }
inline Lane where_less(Lane x, Lane limit, Lane a, Lane b) { return x.v < limit.v ? a : b; }
inline Lane whole(Lane a) { return {std::nearbyint(a.v)}; }
inline Lane sqrt(Lane a) { return {std::sqrt(a.v)}; }
inline Lane exp(Lane a) { return {exp_ref(a.v)}; }
template <typename F>
inline Lane each_lane(Lane a, F f) {
  return {f(a.v)};
}
template <typename F>
inline Lane each_lane(Lane a, Lane b, F f) {
  return {f(a.v, b.v)};
}

}  // namespace
}  // namespace tcim_lite::cpu

#include "backends/cpu/kernels/vector/functions.h"  // behind what its templates use
