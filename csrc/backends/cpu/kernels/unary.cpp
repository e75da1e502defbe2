#include "backends/cpu/kernels/functions_simd.h"

namespace tcim_lite::cpu {
namespace {

template <typename T, UnaryOp op>
void unary(const UnaryArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  T* y = static_cast<T*>(args.y);
  for_lanes(args.count,
            [&](int64_t i, auto lanes) { store(y + i, apply<op>(load(x + i, lanes), args.alpha, args.beta), lanes); });
}

template <int op = 0>
void enter_ops(KernelTable& table) {
  if constexpr (op < kUnaryOps) {
    constexpr auto kOp = UnaryOp(op);
    enter(table.unary[op], unary<uint16_t, kOp>, unary<float, kOp>);
    enter_ops<op + 1>(table);
  }
}

}  // namespace

void TCIM_LITE_USE(unary)(KernelTable& table) { enter_ops(table); }

}  // namespace tcim_lite::cpu
