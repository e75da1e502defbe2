#include "backends/cpu/reference/functions.h"

namespace tcim_lite::cpu {
namespace {

template <typename Row, UnaryOp op>
void unary(const UnaryArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* x = Row::at(args.x, row * args.x_stride);
    void* y = Row::at(args.y, row * args.y_stride);
    for (int64_t i = 0; i < args.count; ++i) {
      const float value = apply<op>(Lane{Row::load(x, i)}, args.alpha, args.beta).v;
      Row::store(y, i, args.to_half ? F16Row::round(value) : value);
    }
  }
}

}  // namespace

void use_unary_ref(KernelTable& table) {
  for_ops<UnaryOp, kUnaryOps>(
      [&](auto op) { enter(table.unary[op.value], unary<F16Row, op.value>, unary<F32Row, op.value>); });
}

}  // namespace tcim_lite::cpu
