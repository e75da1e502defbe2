// Elements of tensors between ops for the reference kernels, which are built with the baseline flags: a merged inline
// copy is harmless.
#pragma once

#include <cstdint>

#include "backends/cpu/kernel_table.h"
#include "base/half.h"

namespace tcim_lite::cpu {

// One row of a tensor of T. kF16 rounds to nearest even and saturates at 65504.
template <Elem E>
struct RefRow;

template <>
struct RefRow<kF16> {
  static float load(const void* row, int64_t i) { return half_to_float(static_cast<const uint16_t*>(row)[i]); }
  static void store(void* row, int64_t i, float value) {
    static_cast<uint16_t*>(row)[i] = float_to_half_saturate(value);
  }
  static float round(float value) { return half_to_float(float_to_half_saturate(value)); }
  static const void* at(const void* base, int64_t offset) { return static_cast<const uint16_t*>(base) + offset; }
  static void* at(void* base, int64_t offset) { return static_cast<uint16_t*>(base) + offset; }
};

template <>
struct RefRow<kF32> {
  static float load(const void* row, int64_t i) { return static_cast<const float*>(row)[i]; }
  static void store(void* row, int64_t i, float value) { static_cast<float*>(row)[i] = value; }
  static float round(float value) { return value; }
  static const void* at(const void* base, int64_t offset) { return static_cast<const float*>(base) + offset; }
  static void* at(void* base, int64_t offset) { return static_cast<float*>(base) + offset; }
};

using F16Row = RefRow<kF16>;
using F32Row = RefRow<kF32>;

// Of 16 partial sums (docs/numerics.md section 6), which it overwrites.
inline float tree_sum(float* partial) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) partial[i] += partial[i + half];
  }
  return partial[0];
}

// The project's exp (docs/numerics.md), defined in activation.cpp.
float exp_ref(float x);

}  // namespace tcim_lite::cpu
