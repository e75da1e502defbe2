// What kernels of Linears take: activations quantised, multiplied, stored (kernel_table.h says what all share).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tcim_lite::cpu {

constexpr int64_t kFewRows = 8;  // up to here a Linear is bound by its weight stream

// Activations of a quantised Linear: codes in [-127, 127] with one power of two per 64. In the hidden-exponent format
// (docs/numerics.md section 3) codes go down to -128, and those of elements 16, 18, .. 30 of every 32 are even.
struct QuantizeArgs {
  const void* x;  // [rows, 64 * groups] T
  int8_t* codes;  // [rows, 64 * groups], dense, 64-byte aligned
  float* scales;  // [rows, groups] 2^e
  int32_t* sums;  // [rows, groups] sum of the codes
  int64_t rows, groups, x_stride;
};

// acc = sum over groups of fma(float(dot), weight_scale * scale, acc), from 0.
struct LinearQuantArgs {
  const uint8_t* weights;               // first block; 64-byte aligned (graph/weight_format.h)
  int64_t block_stride;                 // bytes between blocks
  int64_t blocks;                       // of 16 outputs
  int64_t groups;                       // K / 64
  const int8_t* codes;                  // [rows, 64 * groups] as QuantizeArgs
  const float* scales;                  // [rows, groups]
  const int32_t* sums;                  // [rows, groups]
  int64_t rows;                         // >= 1
  float* acc;                           // [rows, acc_stride]; 16 * blocks of each row are written; 64-byte aligned
  int64_t acc_stride;                   // multiple of 16
  const std::byte* arranged = nullptr;  // [rows, ArrangedKernels::row_bytes(groups)]: for ArrangedKernels::multiply
  std::byte* scratch = nullptr;         // [ArrangedKernels::scratch_bytes], 64-byte aligned: for the same
};

// Makes a form of rows of activations that a set multiplies faster.
struct ArrangeArgs {
  const int8_t* codes;  // [rows, 64 * groups] as QuantizeArgs
  const float* scales;  // [rows, groups]
  std::byte* arranged;  // [rows, ArrangedKernels::row_bytes(groups)], 64-byte aligned
  int64_t rows, groups;
};

// acc = fma(w_k, x_k, acc), k ascending from 0. Weights LinearF16/F32; with LinearW4/W8 the dequantised value (the
// profile TCIM_LITE_NUMERICS=float).
struct LinearFloatArgs {
  const uint8_t* weights;
  int64_t block_stride, blocks;
  int64_t cols;    // K
  const float* x;  // [rows, cols]
  int64_t x_stride, rows;
  float* acc;  // as LinearQuantArgs
  int64_t acc_stride;
};

// y = round(acc + bias); with a residual y = round(residual + round(acc + bias)). y may be residual.
struct StoreArgs {
  const float* acc;      // [rows, cols]
  const float* bias;     // [cols] or null
  const void* residual;  // [rows, cols] T or null
  void* y;               // [rows, cols] T
  int64_t rows, cols, acc_stride, residual_stride, y_stride;
};

// y[16 b + i] = round(silu(round(acc[32 b + i] + bias)) * round(acc[32 b + 16 + i] + bias)); silu(g) = g / (1 +
// exp(-g)).
struct SiluMulStoreArgs {
  const float* acc;   // [rows, 2 * cols]
  const float* bias;  // [2 * cols] or null
  void* y;            // [rows, cols] T, cols a multiple of 16
  int64_t rows, cols, acc_stride, y_stride;
};

}  // namespace tcim_lite::cpu
