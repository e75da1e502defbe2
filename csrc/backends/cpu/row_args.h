// What kernels over rows of elements take (kernel_table.h says what all share).
#pragma once

#include <cstdint>

namespace tcim_lite::cpu {

// y = x / sqrt(mean(x^2) + epsilon) * weight, one rounding to T. y may be x.
struct RmsNormArgs {
  const void* x;        // [rows, cols] T
  void* y;              // [rows, cols] T
  const float* weight;  // [cols]
  int64_t rows, cols, x_stride, y_stride;
  float epsilon;
};

// y = op(a, b), one rounding to T. y may be a.
struct ElementwiseArgs {
  const void* a;  // [rows, cols] T
  const void* b;  // [rows, cols] T
  void* y;        // [rows, cols] T
  int64_t rows, cols, a_stride, b_stride, y_stride;
  bool a_repeats = false, b_repeats = false;  // the first element of a row stands for all of it
};

// y = condition < 0 or > 0 ? a : b, one row; operands repeat as those of ElementwiseArgs.
struct WhereArgs {
  const void* condition;  // [cols] T
  const void* a;          // [cols] T
  const void* b;          // [cols] T
  void* y;                // [cols] T
  int64_t cols;
  bool condition_repeats, a_repeats, b_repeats;
};

// y = round(op(x)). y may be x.
struct UnaryArgs {
  const void* x;  // [rows, count] T
  void* y;        // [rows, count] T
  int64_t count;
  float alpha, beta;
  int64_t rows = 1, x_stride = 0, y_stride = 0;  // elements from one row to the next
  bool to_half = false;                          // T is fp32: rounded to what fp16 holds
};

// y[row] = round(op(x[row])).
struct ReduceArgs {
  const void* x;  // [rows, cols] T
  void* y;        // [rows] T
  int64_t rows, cols;
};

// y = round(exp(x - m) / sum of exp(x - m)), m the largest of the row; with `log` round((x - m) - log(that sum)).
// Without `log` y may be x.
struct SoftmaxArgs {
  const void* x;   // [rows, cols] T
  void* y;         // [rows, cols] T
  float* scratch;  // [cols]
  int64_t rows, cols;
  bool log;
};

// y = round((x - mean) * (1 / sqrt(variance + epsilon)) * weight + bias), the last two with one fma.
struct LayerNormArgs {
  const void* x;        // [rows, cols] T
  void* y;              // [rows, cols] T
  const float* weight;  // [cols] or null
  const float* bias;    // [cols] or null
  int64_t rows, cols;
  float epsilon;
};

// y[o, i, n] = round(sum over t of weights[i, t] * x[o, indices[i, t], n]), t ascending from 0 with fma. More than one
// row o, at most kTurnedRows, only where inner is 1.
struct ResampleArgs {
  const void* x;           // [rows, extent, inner] T
  const int32_t* indices;  // [count, taps], each in range
  const float* weights;    // [count, taps]
  void* y;                 // [rows, count, inner] T
  int64_t rows, extent, count, taps, inner;
  float* scratch;  // of several rows: [extent + kTurnedRows, kTurnedRows]
};
constexpr int64_t kTurnedRows = 16;

// y = round(sum over k of weights[k] * x[k]), k ascending from 0 with fma; with a residual y = round(residual + that).
// y may be residual.
struct WeightedSumArgs {
  const void* x;         // [count, cols] T
  const float* weights;  // [count]
  const void* residual;  // [cols] T or null
  void* y;               // [cols] T
  int64_t count, cols;
};

// SiluMulStoreArgs on T, without a bias.
struct SiluMulArgs {
  const void* x;  // [rows, 2 * cols] T, alternating in blocks of 16
  void* y;        // [rows, cols] T, cols a multiple of 16
  int64_t rows, cols, x_stride, y_stride;
};

// y[16 b + i] = round((up + 1) * (gate / (1 + exp(-(alpha * gate))))) with gate at most `limit` and up in [-limit,
// limit].
struct ClampedGluArgs {
  SiluMulArgs rows;
  float alpha, limit;
};

// Rotate-half on one token: y1 = fma(-x2, sin, x1 * cos), y2 = fma(x1, sin, x2 * cos), each product and fma rounded to
// fp32 once, then one rounding to T. x1 is the first half of a head, x2 the second. y may be x.
struct RopeArgs {
  const void* x;                                // [heads, head_dim] T, the elements of a head that turn
  void* y;                                      // [heads, head_dim] T
  const float* cos;                             // [head_dim / 2]
  const float* sin;                             // [head_dim / 2]
  int64_t heads, head_dim, x_stride, y_stride;  // strides between heads
};

// y = x * factor in fp32. factor 1 is exact.
struct WidenArgs {
  const void* x;  // [rows, cols] T
  float* y;       // [rows, cols]
  int64_t rows, cols, x_stride, y_stride;
  float factor;
};

// y = round(x); fp16 saturates at 65504.
struct NarrowArgs {
  const float* x;  // [rows, cols]
  void* y;         // [rows, cols] T
  int64_t rows, cols, x_stride, y_stride;
};

// y[i, j] = round(acc), acc = fma(a[i, k], b[k, j], acc), k ascending from 0: for few rows. `turned`: b[j, k].
struct FewRowsArgs {
  const float* a;  // [rows, k]
  const void* b;   // [k, b_stride] T, cols of each; turned: [cols, b_stride], k of each
  void* y;         // [rows, y_stride] T, cols of each
  int64_t rows, k, cols, b_stride, y_stride;
  bool turned;
};

// y[j, i] = x[i, j], elements of 2 or 4 bytes.
struct TransposeArgs {
  const void* x;       // [rows, cols]
  void* y;             // [cols, rows]
  int64_t rows, cols;  // of x
  int64_t x_stride, y_stride;
};

// True when every element is neither NaN nor infinite.
struct FiniteArgs {
  const void* x;  // [rows, cols] T
  int64_t rows, cols, x_stride;
};

}  // namespace tcim_lite::cpu
