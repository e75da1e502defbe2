// functions.h over the vectors of simd.h.
#pragma once

#include "backends/cpu/kernels/vector/simd.h"

namespace tcim_lite::cpu {
namespace {

#ifdef __AVX2__
// One instruction each: of numbers that do not compare, or are equal, it returns the second.
inline Vec larger(Vec a, Vec b) { return max(b, a); }
inline Vec smaller(Vec a, Vec b) { return min(b, a); }
#endif

template <typename F>
inline Vec each_lane(Vec a, F f) {
  alignas(64) float x[kLanes];
  store(x, a);
  for (float& lane : x) lane = f(lane);
  return load(x);
}
template <typename F>
inline Vec each_lane(Vec a, Vec b, F f) {
  alignas(64) float x[kLanes], y[kLanes];
  store(x, a);
  store(y, b);
  for (int64_t i = 0; i < kLanes; ++i) x[i] = f(x[i], y[i]);
  return load(x);
}

}  // namespace
}  // namespace tcim_lite::cpu

#include "backends/cpu/kernels/vector/functions.h"  // behind what its templates use
