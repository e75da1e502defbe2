#include "backends/cpu/kernels/functions_ref.h"

namespace tcim_lite::cpu {
namespace {

template <Elem E, UnaryOp op>
void unary(const UnaryArgs& args) {
  using Row = RefRow<E>;
  for (int64_t i = 0; i < args.count; ++i)
    Row::store(args.y, i, apply<op>(Lane{Row::load(args.x, i)}, args.alpha, args.beta).v);
}

template <int op = 0>
void enter_ops(KernelTable& table) {
  if constexpr (op < kUnaryOps) {
    constexpr auto kOp = UnaryOp(op);
    enter(table.unary[op], unary<kF16, kOp>, unary<kF32, kOp>);
    enter_ops<op + 1>(table);
  }
}

}  // namespace

void use_unary_ref(KernelTable& table) { enter_ops(table); }

}  // namespace tcim_lite::cpu
