#include "backends/cpu/kernels/simd.h"

namespace tcim_lite::cpu {
namespace {

// One line for each ElementwiseOp; the same in elementwise_ref.cpp.
template <ElementwiseOp op>
Vec apply(Vec a, Vec b) {
  if constexpr (op == kAdd) return a + b;
  if constexpr (op == kMul) return a * b;
}

template <typename T, ElementwiseOp op>
void elementwise(const ElementwiseArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* a = static_cast<const T*>(args.a) + row * args.a_stride;
    const T* b = static_cast<const T*>(args.b) + row * args.b_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for_lanes(args.cols,
              [&](int64_t i, auto lanes) { store(y + i, apply<op>(load(a + i, lanes), load(b + i, lanes)), lanes); });
  }
}

template <typename T>
void store_rows(const StoreArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* acc = args.acc + row * args.acc_stride;
    const T* residual = args.residual ? static_cast<const T*>(args.residual) + row * args.residual_stride : nullptr;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      Vec value = load(acc + i, lanes);
      if (args.bias) value = value + load(args.bias + i, lanes);
      if (residual) value = load(residual + i, lanes) + round_to<T>(value);
      store(y + i, value, lanes);
    });
  }
}

template <typename T>
void weighted_sum(const WeightedSumArgs& args) {
  const T *x = static_cast<const T*>(args.x), *residual = static_cast<const T*>(args.residual);
  for_lanes(args.cols, [&](int64_t i, auto lanes) {
    Vec sum = broadcast(0.0f);
    for (int64_t k = 0; k < args.count; ++k)
      sum = fma(broadcast(args.weights[k]), load(x + k * args.cols + i, lanes), sum);
    if (residual) sum = load(residual + i, lanes) + round_to<T>(sum);
    store(static_cast<T*>(args.y) + i, sum, lanes);
  });
}

template <typename T>
void widen(const WidenArgs& args) {
  const Vec factor = broadcast(args.factor);
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    float* y = args.y + row * args.y_stride;
    for_lanes(args.cols, [&](int64_t i, auto lanes) { store(y + i, load(x + i, lanes) * factor, lanes); });
  }
}

template <typename T>
void narrow(const NarrowArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for_lanes(args.cols, [&](int64_t i, auto lanes) { store(y + i, load(x + i, lanes), lanes); });
  }
}

template <typename T>
bool all_finite(const FiniteArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    if (!are_finite(static_cast<const T*>(args.x) + row * args.x_stride, args.cols)) return false;
  }
  return true;
}

template <int op = 0>
void enter_ops(KernelTable& table) {
  if constexpr (op < kElementwiseOps) {
    constexpr auto kOp = ElementwiseOp(op);
    enter(table.elementwise[op], elementwise<uint16_t, kOp>, elementwise<float, kOp>);
    enter_ops<op + 1>(table);
  }
}

}  // namespace

void TCIM_LITE_USE(elementwise)(KernelTable& table) {
  enter_ops(table);
  enter(table.store, store_rows<uint16_t>, store_rows<float>);
  enter(table.weighted_sum, weighted_sum<uint16_t>, weighted_sum<float>);
  enter(table.widen, widen<uint16_t>, widen<float>);
  enter(table.narrow, narrow<uint16_t>, narrow<float>);
  enter(table.all_finite, all_finite<uint16_t>, all_finite<float>);
}

}  // namespace tcim_lite::cpu
