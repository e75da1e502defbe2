// What turns the sums of a Conv into elements of its result.
#pragma once

#include "backends/cpu/kernels/functions_simd.h"

namespace tcim_lite::cpu {
namespace {

template <typename T, int Function>
struct EndOf {
  float alpha, beta;

  // y[i] = round(function(round(residual[i] + round(sum + bias)))), what is null left out.
  template <typename Lanes>
  void store_sum(Vec sum, const float* bias, const T* residual, T* y, int64_t i, Lanes lanes) const {
    if (bias) sum = sum + broadcast(*bias);
    store_biased(sum, residual, y, i, lanes);
  }
  // The same of a sum that has its bias.
  template <typename Lanes>
  void store_biased(Vec sum, const T* residual, T* y, int64_t i, Lanes lanes) const {
    if (residual) sum = load(residual + i, lanes) + round_to<T>(sum);
    if constexpr (Function >= 0) sum = apply<UnaryOp(Function)>(round_to<T>(sum), alpha, beta);
    store(y + i, sum, lanes);
  }
};

// body(EndOf of the function), for those of can_end().
template <typename T, typename Body>
inline void with_end(const ConvEnd& end, Body body) {
  if (end.function == kRelu) return body(EndOf<T, kRelu>{end.alpha, end.beta});
  if (end.function == kClip) return body(EndOf<T, kClip>{end.alpha, end.beta});
  body(EndOf<T, -1>{});
}

}  // namespace
}  // namespace tcim_lite::cpu
