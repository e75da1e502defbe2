// Ops of one operand.
#include "backends/cpu/kernels/vector/functions_simd.h"

namespace tcim_lite::cpu {
namespace {

template <typename T, UnaryOp op>
void unary(const UnaryArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  T* y = static_cast<T*>(args.y);
  for_lanes(args.count,
            [&](int64_t i, auto lanes) { store(y + i, apply<op>(load(x + i, lanes), args.alpha, args.beta), lanes); });
}

}  // namespace

void TCIM_LITE_USE(unary)(KernelTable& table) {
  for_ops<kUnaryOps>([&](auto op) {
    constexpr auto kOp = UnaryOp(op.value);
    enter(table.unary[kOp], unary<uint16_t, kOp>, unary<float, kOp>);
  });
}

}  // namespace tcim_lite::cpu
