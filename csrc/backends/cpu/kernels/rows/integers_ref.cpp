// Ops of int32. Sums, differences and products keep their low 32 bits.
#include "backends/cpu/kernels/vector/functions_ref.h"

namespace tcim_lite::cpu {
namespace {

int32_t low_bits(int64_t x) { return int32_t(uint32_t(uint64_t(x))); }

int32_t apply(ElementwiseOp op, int64_t a, int64_t b) {
  switch (op) {
    case kAdd:
      return low_bits(a + b);
    case kSub:
      return low_bits(a - b);
    case kMul:
      return low_bits(a * b);
    case kDiv:
      return b == 0 ? 0 : low_bits(a / b);
    case kMax:
      return int32_t(a > b ? a : b);
    case kMin:
      return int32_t(a < b ? a : b);
    case kEqual:
      return a == b;
    case kLess:
      return a < b;
    default:
      return 0;
  }
}

template <ElementwiseOp op>
void elementwise(const ElementwiseArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const int32_t* a = static_cast<const int32_t*>(args.a) + row * args.a_stride;
    const int32_t* b = static_cast<const int32_t*>(args.b) + row * args.b_stride;
    int32_t* y = static_cast<int32_t*>(args.y) + row * args.y_stride;
    for (int64_t i = 0; i < args.cols; ++i) y[i] = apply(op, a[args.a_repeats ? 0 : i], b[args.b_repeats ? 0 : i]);
  }
}

void where_integers(const WhereArgs& args) {
  const auto at = [](const void* row, bool repeats, int64_t i) {
    return static_cast<const int32_t*>(row)[repeats ? 0 : i];
  };
  for (int64_t i = 0; i < args.cols; ++i) {
    const bool chosen = at(args.condition, args.condition_repeats, i) != 0;
    static_cast<int32_t*>(args.y)[i] = chosen ? at(args.a, args.a_repeats, i) : at(args.b, args.b_repeats, i);
  }
}

template <ReduceOp op>
void reduce_integers(const ReduceArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const int32_t* x = static_cast<const int32_t*>(args.x) + row * args.cols;
    int32_t result = x[0];
    for (int64_t i = 1; i < args.cols; ++i) result = apply(step_of_integers(op), result, x[i]);
    static_cast<int32_t*>(args.y)[row] = result;
  }
}

}  // namespace

void use_integers_ref(KernelTable& table) {
  for_ops<kElementwiseOps>([&](auto op) {
    constexpr auto kOp = ElementwiseOp(op.value);
    table.elementwise[kOp][kI32] = has_integers(kOp) ? elementwise<kOp> : nullptr;
  });
  for_ops<kReduceOps>([&](auto op) {
    constexpr auto kOp = ReduceOp(op.value);
    table.reduce[kOp][kI32] = has_integers(kOp) ? reduce_integers<kOp> : nullptr;
  });
  table.where[kI32] = where_integers;
}

}  // namespace tcim_lite::cpu
