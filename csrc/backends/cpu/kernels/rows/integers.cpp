// Ops of int32, as loops that a compiler turns into vectors of each instruction set. They are the reference, too. Sums,
// differences and products keep their low 32 bits.
#include "backends/cpu/kernels/vector/functions.h"

namespace tcim_lite::cpu {
namespace {

template <ElementwiseOp op>
inline int32_t apply(int32_t a, int32_t b) {
  const uint32_t x = uint32_t(a), y = uint32_t(b);  // whose results wrap
  if constexpr (op == kAdd) return int32_t(x + y);
  if constexpr (op == kSub) return int32_t(x - y);
  if constexpr (op == kMul) return int32_t(x * y);
  // A divisor of -1 may overflow.
  if constexpr (op == kDiv) return b == 0 ? 0 : b == -1 ? int32_t(0 - x) : a / b;
  if constexpr (op == kMax) return a > b ? a : b;
  if constexpr (op == kMin) return a < b ? a : b;
  if constexpr (op == kEqual) return a == b;
  if constexpr (op == kLess) return a < b;
}

template <ElementwiseOp op>
void elementwise(const ElementwiseArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const int32_t* a = static_cast<const int32_t*>(args.a) + row * args.a_stride;
    const int32_t* b = static_cast<const int32_t*>(args.b) + row * args.b_stride;
    int32_t* y = static_cast<int32_t*>(args.y) + row * args.y_stride;
    const int32_t first_a = a[0], first_b = b[0];
    if (args.a_repeats && args.b_repeats) {
      const int32_t value = apply<op>(first_a, first_b);
      for (int64_t i = 0; i < args.cols; ++i) y[i] = value;
    } else if (args.a_repeats) {
      for (int64_t i = 0; i < args.cols; ++i) y[i] = apply<op>(first_a, b[i]);
    } else if (args.b_repeats) {
      for (int64_t i = 0; i < args.cols; ++i) y[i] = apply<op>(a[i], first_b);
    } else {
      for (int64_t i = 0; i < args.cols; ++i) y[i] = apply<op>(a[i], b[i]);
    }
  }
}

void where_integers(const WhereArgs& args) {
  const auto* condition = static_cast<const int32_t*>(args.condition);
  const auto *a = static_cast<const int32_t*>(args.a), *b = static_cast<const int32_t*>(args.b);
  auto* y = static_cast<int32_t*>(args.y);
  if (!args.condition_repeats && !args.a_repeats && !args.b_repeats) {
    for (int64_t i = 0; i < args.cols; ++i) {
      const int32_t yes = a[i], no = b[i];
      y[i] = condition[i] != 0 ? yes : no;
    }
    return;
  }
  // 0 where an operand repeats.
  const int64_t step = args.condition_repeats ? 0 : 1, step_a = args.a_repeats ? 0 : 1, step_b = args.b_repeats ? 0 : 1;
  for (int64_t i = 0; i < args.cols; ++i) y[i] = condition[i * step] != 0 ? a[i * step_a] : b[i * step_b];
}

template <ReduceOp op>
void reduce_integers(const ReduceArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const int32_t* x = static_cast<const int32_t*>(args.x) + row * args.cols;
    int32_t result = x[0];
    for (int64_t i = 1; i < args.cols; ++i) result = apply<step_of_integers(op)>(result, x[i]);
    static_cast<int32_t*>(args.y)[row] = result;
  }
}

}  // namespace

void TCIM_LITE_USE(integers)(KernelTable& table) {
  for_ops<ElementwiseOp, kElementwiseOps>([&](auto op) {
    if constexpr (has_integers(op.value)) table.elementwise[op.value][kI32] = elementwise<op.value>;
  });
  for_ops<ReduceOp, kReduceOps>([&](auto op) {
    if constexpr (has_integers(op.value)) table.reduce[op.value][kI32] = reduce_integers<op.value>;
  });
  table.where[kI32] = where_integers;
}

}  // namespace tcim_lite::cpu
