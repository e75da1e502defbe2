#include <cmath>

#include "backends/cpu/kernels/functions_ref.h"

namespace tcim_lite::cpu {
namespace {

template <Elem E>
void store(const StoreArgs& args) {
  using Row = RefRow<E>;
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* acc = args.acc + row * args.acc_stride;
    void* y = Row::at(args.y, row * args.y_stride);
    const void* residual = args.residual ? Row::at(args.residual, row * args.residual_stride) : nullptr;
    for (int64_t i = 0; i < args.cols; ++i) {
      float value = args.bias ? acc[i] + args.bias[i] : acc[i];
      if (residual) value = Row::load(residual, i) + Row::round(value);
      Row::store(y, i, value);
    }
  }
}

template <Elem E, ElementwiseOp op>
void elementwise(const ElementwiseArgs& args) {
  using Row = RefRow<E>;
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* a = Row::at(args.a, row * args.a_stride);
    const void* b = Row::at(args.b, row * args.b_stride);
    void* y = Row::at(args.y, row * args.y_stride);
    for (int64_t i = 0; i < args.cols; ++i) {
      const Lane left{Row::load(a, args.a_repeats ? 0 : i)}, right{Row::load(b, args.b_repeats ? 0 : i)};
      Row::store(y, i, apply<op>(left, right).v);
    }
  }
}

template <Elem E>
void where(const WhereArgs& args) {
  using Row = RefRow<E>;
  for (int64_t i = 0; i < args.cols; ++i) {
    const float condition = Row::load(args.condition, args.condition_repeats ? 0 : i);
    Row::store(args.y, i,
               condition < 0 || condition > 0 ? Row::load(args.a, args.a_repeats ? 0 : i)
                                              : Row::load(args.b, args.b_repeats ? 0 : i));
  }
}

template <Elem E>
void weighted_sum(const WeightedSumArgs& args) {
  using Row = RefRow<E>;
  for (int64_t i = 0; i < args.cols; ++i) {
    float sum = 0;
    for (int64_t k = 0; k < args.count; ++k)
      sum = std::fmaf(args.weights[k], Row::load(args.x, k * args.cols + i), sum);
    if (args.residual) sum = Row::load(args.residual, i) + Row::round(sum);
    Row::store(args.y, i, sum);
  }
}

template <Elem E>
void widen(const WidenArgs& args) {
  using Row = RefRow<E>;
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* x = Row::at(args.x, row * args.x_stride);
    float* y = args.y + row * args.y_stride;
    for (int64_t i = 0; i < args.cols; ++i) y[i] = Row::load(x, i) * args.factor;
  }
}

template <Elem E>
void narrow(const NarrowArgs& args) {
  using Row = RefRow<E>;
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    void* y = Row::at(args.y, row * args.y_stride);
    for (int64_t i = 0; i < args.cols; ++i) Row::store(y, i, x[i]);
  }
}

template <Elem E>
bool all_finite(const FiniteArgs& args) {
  using Row = RefRow<E>;
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* x = Row::at(args.x, row * args.x_stride);
    for (int64_t i = 0; i < args.cols; ++i) {
      if (!std::isfinite(Row::load(x, i))) return false;
    }
  }
  return true;
}

template <int op = 0>
void enter_ops(KernelTable& table) {
  if constexpr (op < kElementwiseOps) {
    constexpr auto kOp = ElementwiseOp(op);
    enter(table.elementwise[op], elementwise<kF16, kOp>, elementwise<kF32, kOp>);
    enter_ops<op + 1>(table);
  }
}

}  // namespace

void use_elementwise_ref(KernelTable& table) {
  enter_ops(table);
  enter(table.where, where<kF16>, where<kF32>);
  enter(table.store, store<kF16>, store<kF32>);
  enter(table.weighted_sum, weighted_sum<kF16>, weighted_sum<kF32>);
  enter(table.widen, widen<kF16>, widen<kF32>);
  enter(table.narrow, narrow<kF16>, narrow<kF32>);
  enter(table.all_finite, all_finite<kF16>, all_finite<kF32>);
}

}  // namespace tcim_lite::cpu
