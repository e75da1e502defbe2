#include "backends/cpu/kernels/vector/functions_ref.h"

namespace tcim_lite::cpu {
namespace {

template <typename Row, UnaryOp op>
void unary(const UnaryArgs& args) {
  for (int64_t i = 0; i < args.count; ++i)
    Row::store(args.y, i, apply<op>(Lane{Row::load(args.x, i)}, args.alpha, args.beta).v);
}

}  // namespace

void use_unary_ref(KernelTable& table) {
  for_ops<kUnaryOps>([&](auto op) {
    constexpr auto kOp = UnaryOp(op.value);
    enter(table.unary[kOp], unary<F16Row, kOp>, unary<F32Row, kOp>);
  });
}

}  // namespace tcim_lite::cpu
