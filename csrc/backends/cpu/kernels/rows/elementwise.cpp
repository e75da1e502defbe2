// Ops of two operands, Where, and what turns sums and rows into elements.
#include "backends/cpu/kernels/vector/functions_simd.h"

namespace tcim_lite::cpu {
namespace {

template <typename T, ElementwiseOp op>
void elementwise(const ElementwiseArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* a = static_cast<const T*>(args.a) + row * args.a_stride;
    const T* b = static_cast<const T*>(args.b) + row * args.b_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    if (!args.a_repeats && !args.b_repeats) {
      for_lanes(args.cols,
                [&](int64_t i, auto lanes) { store(y + i, apply<op>(load(a + i, lanes), load(b + i, lanes)), lanes); });
      continue;
    }
    const Vec first_a = load(a, Tail(1)), first_b = load(b, Tail(1));
    const Vec all_a = broadcast(first_lane(first_a)), all_b = broadcast(first_lane(first_b));
    if constexpr (op == kPow) {
      const float power = first_lane(first_b);
      if (!args.a_repeats && is_quick_power(power)) {
        for_lanes(args.cols,
                  [&](int64_t i, auto lanes) { store(y + i, quick_power(load(a + i, lanes), power), lanes); });
        continue;
      }
    }
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      const Vec left = args.a_repeats ? all_a : load(a + i, lanes), right = args.b_repeats ? all_b : load(b + i, lanes);
      store(y + i, apply<op>(left, right), lanes);
    });
  }
}

template <typename T>
void where(const WhereArgs& args) {
  const T *condition = static_cast<const T*>(args.condition), *a = static_cast<const T*>(args.a),
          *b = static_cast<const T*>(args.b);
  const auto at = [](const T* row, bool repeats, int64_t i, auto lanes) {
    return repeats ? broadcast(first_lane(load(row, Tail(1)))) : load(row + i, lanes);
  };
  for_lanes(args.cols, [&](int64_t i, auto lanes) {
    store(static_cast<T*>(args.y) + i,
          choose(at(condition, args.condition_repeats, i, lanes), at(a, args.a_repeats, i, lanes),
                 at(b, args.b_repeats, i, lanes)),
          lanes);
  });
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

}  // namespace

void TCIM_LITE_USE(elementwise)(KernelTable& table) {
  for_ops<ElementwiseOp, kElementwiseOps>([&](auto op) {
    enter(table.elementwise[op.value], elementwise<uint16_t, op.value>, elementwise<float, op.value>);
  });
  enter(table.where, where<uint16_t>, where<float>);
  enter(table.store, store_rows<uint16_t>, store_rows<float>);
  enter(table.weighted_sum, weighted_sum<uint16_t>, weighted_sum<float>);
  enter(table.widen, widen<uint16_t>, widen<float>);
  enter(table.narrow, narrow<uint16_t>, narrow<float>);
  enter(table.all_finite, all_finite<uint16_t>, all_finite<float>);
}

}  // namespace tcim_lite::cpu
