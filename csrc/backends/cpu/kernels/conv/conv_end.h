// What turns the sums of a Conv into elements of its result.
#pragma once

#include "backends/cpu/kernels/vector/functions_simd.h"

namespace tcim_lite::cpu {
namespace {

// The function is known at run time: to ask at each store costs little, and kernels have few forms to compile.
template <typename T>
struct EndOf {
  ConvEnd end;

  // y[i] = round(function(round(residual[i] + round(sum + bias)))), what is null left out.
  template <typename Lanes>
  void store_sum(Vec sum, const float* bias, const T* residual, T* y, int64_t i, Lanes lanes) const {
    if (bias) sum = sum + broadcast(*bias);
    if (residual) sum = load(residual + i, lanes) + round_to<T>(sum);
    if (end.function == kRelu) {
      sum = apply<kRelu>(round_to<T>(sum), 0.0f, 0.0f);
    } else if (end.function == kClip) {
      sum = apply<kClip>(round_to<T>(sum), end.alpha, end.beta);
    }
    store(y + i, sum, lanes);
  }
};

// The same into blocks, whose rounding is known at run time as well; what is asked is asked once for some neighbouring
// pixels.
class BlockEnd {
 public:
  BlockEnd(const ConvEnd& end, Elem elem) : end_(end), rounds_(elem == kF16) {
    // Between bounds that fp16 holds lies what it holds.
    const auto is_held = [](float bound) { return first_lane(round_to_half(broadcast(bound))) == bound; };
    rounds_twice_ = rounds_ && end.function == kClip && !(is_held(end.alpha) && is_held(end.beta));
  }

  // Of Count pixels, whose sums have their bias. `residual` may be null.
  template <int Count>
  __attribute__((always_inline)) void store_all(Vec (&values)[Count], const float* residual, float* y) const {
    if (rounds_) round(values);
    if (residual) {
#pragma GCC unroll 14
      for (int p = 0; p < Count; ++p) values[p] = load(residual + p * kBlock) + values[p];
      if (rounds_) round(values);
    }
    if (end_.function == kRelu) {
#pragma GCC unroll 14
      for (int p = 0; p < Count; ++p) values[p] = apply<kRelu>(values[p], 0.0f, 0.0f);
    } else if (end_.function == kClip) {
#pragma GCC unroll 14
      for (int p = 0; p < Count; ++p) values[p] = apply<kClip>(values[p], end_.alpha, end_.beta);
      if (rounds_twice_) round(values);
    }
#pragma GCC unroll 14
    for (int p = 0; p < Count; ++p) store(y + p * kBlock, values[p]);
  }

 private:
  template <int Count>
  __attribute__((always_inline)) static void round(Vec (&values)[Count]) {
#pragma GCC unroll 14
    for (int p = 0; p < Count; ++p) values[p] = round_to_half(values[p]);
  }

  ConvEnd end_;
  bool rounds_, rounds_twice_;
};

// The biases of a block, 0 behind the last of `count`.
inline Vec load_bias(const float* bias, int64_t count) { return count < kLanes ? load(bias, Tail(count)) : load(bias); }

}  // namespace
}  // namespace tcim_lite::cpu
