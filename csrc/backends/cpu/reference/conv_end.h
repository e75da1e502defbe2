// What elements of a Conv or a pool read, and the function behind a Conv.
#pragma once

#include "backends/cpu/reference/functions.h"

namespace tcim_lite::cpu {
namespace {

// take(tap, value) for what element (row, column) of a result reads: value_at(in_row, in_column), or `outside`.
template <typename Value, typename Take>
void for_taps(const BlockWindow::Axis& h, const BlockWindow::Axis& w, int64_t row, int64_t column, float outside,
              const Value& value_at, const Take& take) {
  for (int64_t tap = 0; tap < h.kernel * w.kernel; ++tap) {
    const int64_t in_row = row * h.stride + tap / w.kernel * h.dilation - h.pad;
    const int64_t in_column = column * w.stride + tap % w.kernel * w.dilation - w.pad;
    const bool inside = in_row >= 0 && in_row < h.in && in_column >= 0 && in_column < w.in;
    take(tap, inside ? value_at(in_row, in_column) : outside);
  }
}

// function(round(value)); what it returns is still to be rounded.
template <typename Row>
float ended(const ConvEnd& end, float value) {
  const Lane rounded{Row::round(value)};
  if (end.function == kRelu) return apply<kRelu>(rounded, end.alpha, end.beta).v;
  if (end.function == kClip) return apply<kClip>(rounded, end.alpha, end.beta).v;
  return value;
}

// Element i of y from a sum. `bias` and `residual` may be null.
template <typename Row>
void store_sum(const ConvEnd& end, const float* bias, const void* residual, void* y, int64_t i, float sum) {
  if (bias) sum = sum + *bias;
  if (residual) sum = Row::load(residual, i) + Row::round(sum);
  Row::store(y, i, ended<Row>(end, sum));
}

// An element of a tensor in blocks.
template <Elem E>
struct BlockRow : F32Row {
  static float round(float value) { return RefRow<E>::round(value); }
  static void store(void* row, int64_t i, float value) { F32Row::store(row, i, round(value)); }
};

// body(BlockRow) of an element type.
template <typename Body>
void with_block_row(Elem elem, const Body& body) {
  if (elem == kF16) return body(BlockRow<kF16>{});
  body(BlockRow<kF32>{});
}

// Of GemmStoreArgs or TurnedStoreArgs; sum(row, i) is what y[row, i] is made of.
template <typename Row, typename Args, typename Sum>
void store_sums(const Args& args, const Sum& sum) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* residual = args.residual ? Row::at(args.residual, row * args.y_stride) : nullptr;
    void* y = Row::at(args.y, row * args.y_stride);
    const float* bias = args.bias ? args.bias + row : nullptr;
    for (int64_t i = 0; i < args.cols; ++i) store_sum<Row>(args.end, bias, residual, y, i, sum(row, i));
  }
}

}  // namespace
}  // namespace tcim_lite::cpu
