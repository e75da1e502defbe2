// What turns the sums of a Conv into elements of its result.
#pragma once

#include "backends/cpu/kernels/vector/functions_simd.h"

namespace tcim_lite::cpu {
namespace {

// Whether fp16 holds a bound: then between it and another lies what fp16 holds, and to round keeps numbers there.
inline bool half_holds(float bound) { return first_lane(round_to_half(broadcast(bound))) == bound; }

// The function is known at run time: to ask at each store costs little, and kernels have few forms to compile.
template <typename T>
class EndOf {
 public:
  explicit EndOf(const ConvEnd& end) : end_(end) {
    if (sizeof(T) != 2) return;
    const bool from_zero = __builtin_bit_cast(uint32_t, end.alpha) == 0;
    if (end.function == kRelu) ceiling_ = kHalfMost;
    if (end.function == kClip && from_zero && end.beta > 0 && half_holds(end.beta)) ceiling_ = end.beta;
  }

  // y[i] = round(function(round(residual[i] + round(sum + bias)))), what is null left out.
  template <typename Lanes>
  void store_sum(Vec sum, const float* bias, const T* residual, T* y, int64_t i, Lanes lanes) const {
    if (bias) sum = sum + broadcast(*bias);
    if (residual) sum = load(residual + i, lanes) + round_to<T>(sum);
    if constexpr (sizeof(T) == 2) {
      // One rounding for two: what rounds to less than -0 becomes 0, and what lies above stays between 0 and a bound.
      if (ceiling_ > 0) return store_from(y + i, smaller(sum, broadcast(ceiling_)), broadcast(kRoundsToZero), lanes);
    }
    if (end_.function == kRelu) {
      sum = apply<kRelu>(round_to<T>(sum), 0.0f, 0.0f);
    } else if (end_.function == kClip) {
      sum = apply<kClip>(round_to<T>(sum), end_.alpha, end_.beta);
    }
    store(y + i, sum, lanes);
  }

 private:
  static constexpr float kHalfMost = 65504.0f, kRoundsToZero = -0x1p-25f;  // to -0, even, beside -2^-24

  ConvEnd end_;
  float ceiling_ = 0;  // above 0: the function is one between 0 and this
};

// The same into blocks, whose rounding is known at run time as well; what is asked is asked once for some neighbouring
// pixels.
class BlockEnd {
 public:
  BlockEnd(const ConvEnd& end, Elem elem) : end_(end), rounds_(elem == kF16) {
    const bool holds_bounds = half_holds(end.alpha) && half_holds(end.beta), clips = end.function == kClip;
    rounds_twice_ = rounds_ && clips && !holds_bounds;
    limits_ = !(clips && holds_bounds);
  }

  // Of Count pixels, whose sums have their bias. `residual` may be null.
  template <int Count>
  __attribute__((always_inline)) void store_all(Vec (&values)[Count], const float* residual, float* y) const {
    if (residual) {
      if (rounds_) round(values);
#pragma GCC unroll 14
      for (int p = 0; p < Count; ++p) values[p] = load(residual + p * kBlock) + values[p];
    }
    if (rounds_) round_last(values);
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

  // What is infinite then, the function makes one of its bounds, as it does with what is limited.
  template <int Count>
  __attribute__((always_inline)) void round_last(Vec (&values)[Count]) const {
    if (limits_) return round(values);
#pragma GCC unroll 14
    for (int p = 0; p < Count; ++p) values[p] = round_to_any_half(values[p]);
  }

  ConvEnd end_;
  bool rounds_, rounds_twice_;
  bool limits_;  // the last rounding before the function must saturate
};

// The biases of a block, 0 behind the last of `count`.
inline Vec load_bias(const float* bias, int64_t count) { return count < kLanes ? load(bias, Tail(count)) : load(bias); }

}  // namespace
}  // namespace tcim_lite::cpu
