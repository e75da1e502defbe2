// Steps over dense tensors of any rank: what networks from ONNX are made of (steps.h).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/plan/elem.h"
#include "graph/plan/resizer_pixel.h"

namespace tcim_lite {

// An operand of an op over dense tensors: a value of the plan, or a weight.
struct Operand {
  uint32_t value = kNoValue;
  bool weight = false;

  bool given() const { return value != kNoValue; }
};

constexpr int kMaxAxes = 8;

// y[i, j, ..] = op(a[..], b[..] [, c[..]]) where an operand with stride 0 on an axis repeats along it. Axes that can be
// one are; y is dense. With `then`, y goes through those ops, one after another, each with its rounding to T.
struct BroadcastSpec {
  static constexpr int kWhere = kElementwiseOps;  // y = a != 0 ? b : c
  static constexpr int kMostThen = 8, kMostOperands = 3 + kMostThen;

  struct Then {
    int op = -1;  // an ElementwiseOp: y = op(y, operand)
    Operand operand;
    int64_t strides[kMaxAxes] = {};
    int function = -1;  // where there is no op, a UnaryOp: y = function(y)
    float alpha = 0, beta = 0;
  };

  int op = kAdd;  // an ElementwiseOp, or kWhere
  Elem elem = kF16;
  Operand operands[3];
  int64_t extents[kMaxAxes] = {};
  int64_t strides[3][kMaxAxes] = {};  // elements
  int axes = 0;
  uint32_t y = kNoValue;
  std::vector<Then> then;  // only where the backend asked for it (Joins)
};

// y = op(x) with numbers alpha and beta.
struct UnarySpec {
  UnaryOp op = kRelu;
  Elem elem = kF16;
  uint32_t x = kNoValue, y = kNoValue;
  int64_t count = 0;
  float alpha = 0, beta = 0;
};

// y[row] = op over the row.
struct ReduceSpec {
  ReduceOp op = kReduceSum;
  Elem elem = kF16;
  uint32_t x = kNoValue, y = kNoValue;
  int64_t rows = 0, cols = 0;
};

struct SoftmaxSpec {
  Elem elem = kF16;
  uint32_t x = kNoValue, y = kNoValue;
  int64_t rows = 0, cols = 0;
  bool log = false;
};

// Over rows of `cols`; weight and bias [cols] where they are given.
struct LayerNormSpec {
  Elem elem = kF16;
  uint32_t x = kNoValue, y = kNoValue, weight_id = kNoValue, bias_id = kNoValue;
  int64_t rows = 0, cols = 0;
  float epsilon = 0;
};

// Where the taps of a two-dimensional window lie. Output (oy, ox) reads, of tap (i, j), the element (y, x) of the input
// with y * upsample = oy * stride + i * dilation - pad, and nothing where there is none.
struct Window {
  struct Axis {
    int64_t in = 1, out = 1, kernel = 1, stride = 1, pad = 0, dilation = 1, upsample = 1;
  };
  Axis h, w;

  int64_t taps() const { return h.kernel * w.kernel; }
  int64_t in_pixels() const { return h.in * w.in; }
  int64_t out_pixels() const { return h.out * w.out; }
};

// y[n, m, pixel] = sum over k of weights[m, k] * tap k of the pixel, k = (c * kernel_h + i) * kernel_w + j; then a bias
// of the output channel, then residual + that, then a function, with a rounding to T before each of the last two.
struct ConvSpec {
  Elem elem = kF16;
  uint32_t x = kNoValue, y = kNoValue;  // [batch, groups * channels, h, w], [batch, groups * outputs, h, w]
  int64_t batch = 1, groups = 1;
  int64_t channels = 0, outputs = 0;  // of a group
  Window window;
  WeightFormat format = WeightFormat::Dense;  // [groups * outputs, inputs] of T; packed: of one group, and of linear_w8
  uint32_t weights_id = kNoValue;             // the last axis is padded to a multiple of 64
  uint32_t bias_id = kNoValue;                // [groups * outputs] float32
  Operand residual;                           // as y
  int function = -1;                          // a UnaryOp; -1: none
  float alpha = 0, beta = 0;

  int64_t inputs() const { return channels * window.taps(); }
  bool quantized() const { return is_quantized(format); }
};

// Of a MatMul with Joins::Products: up to here it reads its right side where it lies, and where that is before a
// Transpose.
constexpr int64_t kFewProductRows = 4, kFewTurnedRows = 8;

// y[b] = a[b] b[b], matrices of T: [m, k] and [k, n]. Rows of b[b] lie b_stride apart; where it is `b_turned`, a matrix
// [n, k] lies there. With `softmax_of`, which holds at most one, a[b] is the softmax
// of the rows of that product's matrix b, each rounded to T, and neither is a value of the plan.
struct MatMulSpec {
  Elem elem = kF16;
  Operand a, b;
  uint32_t y = kNoValue;
  int64_t m = 0, k = 0, n = 0, b_stride = 0;
  bool b_turned = false;                      // only where the backend asked for it (Joins)
  std::vector<int64_t> a_offsets, b_offsets;  // elements, of each product
  std::vector<MatMulSpec> softmax_of;         // likewise
};

// The largest, or the mean, of the taps of each plane. What a window has outside the input counts for a mean where
// `counts_pads`, as zeros, up to the `extent` that padding gives the input.
struct PoolSpec {
  Elem elem = kF16;
  uint32_t x = kNoValue, y = kNoValue;
  int64_t planes = 0, channels = 0;  // of all images, of one
  Window window;
  bool mean = false, counts_pads = false;
  int64_t extent_h = 0, extent_w = 0;  // of the padded input
};

// y[offset + i * y_strides] = x[offset + i * x_strides] for every i below `extents`; strides may be negative or 0.
struct Box {
  Operand x;
  int64_t x_offset = 0, y_offset = 0;
  int64_t extents[kMaxAxes] = {}, x_strides[kMaxAxes] = {}, y_strides[kMaxAxes] = {};
  int axes = 0;
};

// Copies boxes of elements; with `fills`, into what is `fill` everywhere else.
struct MoveSpec {
  int64_t bytes = 2;  // of an element
  std::vector<Box> boxes;
  uint32_t y = kNoValue;
  int64_t count = 0;  // elements of y
  bool fills = false;
  uint32_t fill = 0;  // its bits
};

// y[o, i, n] = x[o, indices[i], n]; indices below 0 count from the end, and what is beyond either end counts as the
// end.
struct GatherSpec {
  int64_t bytes = 2;
  Operand x, indices;  // int32 [count]
  uint32_t y = kNoValue;
  int64_t outer = 1, extent = 1, count = 1, inner = 1;
};

// y[o, i, n] = sum over t of weights[i, t] * x[o, indices[i, t], n], t ascending from 0 with fma.
struct ResampleSpec {
  Elem elem = kF16;
  uint32_t x = kNoValue, y = kNoValue;
  uint32_t indices_id = kNoValue, weights_id = kNoValue;  // [count, taps] int32 and float32
  int64_t outer = 1, extent = 1, count = 1, inner = 1, taps = 1;
};

// Of each row the `chosen` largest or smallest, the best first; of equal ones the lower index first.
struct TopKSpec {
  Elem elem = kF16;
  uint32_t x = kNoValue, values = kNoValue, indices = kNoValue;  // indices int32
  int64_t rows = 0, cols = 0, chosen = 0;
  bool largest = true;
};

// y [batch, 3, out_h, out_w] from uint8 images [batch / parts, image_bytes], each giving `parts` results one after
// another, pixel by pixel as `resizer_pixel` says.
struct ResizerSpec {
  Elem elem = kF16;
  uint32_t image = kNoValue, crops = kNoValue, y = kNoValue;  // crops int32 [batch, kCropNumbers]; none: `crop`
  uint32_t colours_id = kNoValue;                             // float32 [3, kColourNumbers]
  int64_t batch = 1, parts = 1, image_bytes = 0;
  int32_t crop[kCropNumbers] = {};
  ResizerForm form;
};

// y = x, from int32 to T: the nearest number, of two the even one; float16 saturates. From T to int32: whole_part().
struct CastSpec {
  Elem from = kI32, to = kF16;
  uint32_t x = kNoValue, y = kNoValue;
  int64_t count = 0;
};

}  // namespace tcim_lite
