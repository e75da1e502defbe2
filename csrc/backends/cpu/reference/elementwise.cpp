#include <cmath>

#include "backends/cpu/reference/functions.h"

namespace tcim_lite::cpu {
namespace {

template <typename Row>
void store(const StoreArgs& args) {
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

template <typename Row, ElementwiseOp op>
void elementwise(const ElementwiseArgs& args) {
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

template <typename Row>
void where(const WhereArgs& args) {
  for (int64_t i = 0; i < args.cols; ++i) {
    const float condition = Row::load(args.condition, args.condition_repeats ? 0 : i);
    Row::store(args.y, i,
               condition < 0 || condition > 0 ? Row::load(args.a, args.a_repeats ? 0 : i)
                                              : Row::load(args.b, args.b_repeats ? 0 : i));
  }
}

template <typename Row>
void weighted_sum(const WeightedSumArgs& args) {
  for (int64_t i = 0; i < args.cols; ++i) {
    float sum = 0;
    for (int64_t k = 0; k < args.count; ++k)
      sum = std::fmaf(args.weights[k], Row::load(args.x, k * args.cols + i), sum);
    if (args.residual) sum = Row::load(args.residual, i) + Row::round(sum);
    Row::store(args.y, i, sum);
  }
}

template <typename Row>
void widen(const WidenArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* x = Row::at(args.x, row * args.x_stride);
    float* y = args.y + row * args.y_stride;
    for (int64_t i = 0; i < args.cols; ++i) y[i] = Row::load(x, i) * args.factor;
  }
}

template <typename Row>
void narrow(const NarrowArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    void* y = Row::at(args.y, row * args.y_stride);
    for (int64_t i = 0; i < args.cols; ++i) Row::store(y, i, x[i]);
  }
}

template <typename Row>
bool all_finite(const FiniteArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* x = Row::at(args.x, row * args.x_stride);
    for (int64_t i = 0; i < args.cols; ++i) {
      if (!std::isfinite(Row::load(x, i))) return false;
    }
  }
  return true;
}

}  // namespace

void use_elementwise_ref(KernelTable& table) {
  for_ops<ElementwiseOp, kElementwiseOps>([&](auto op) {
    enter(table.elementwise[op.value], elementwise<F16Row, op.value>, elementwise<F32Row, op.value>);
  });
  enter(table.where, where<F16Row>, where<F32Row>);
  enter(table.store, store<F16Row>, store<F32Row>);
  enter(table.weighted_sum, weighted_sum<F16Row>, weighted_sum<F32Row>);
  enter(table.widen, widen<F16Row>, widen<F32Row>);
  enter(table.narrow, narrow<F16Row>, narrow<F32Row>);
  enter(table.all_finite, all_finite<F16Row>, all_finite<F32Row>);
}

}  // namespace tcim_lite::cpu
