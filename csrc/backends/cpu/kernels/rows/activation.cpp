// Gated activations of an MLP.
#include "backends/cpu/kernels/vector/functions_simd.h"

namespace tcim_lite::cpu {
namespace {

template <typename T>
void silu_mul_store(const SiluMulStoreArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* acc = args.acc + row * args.acc_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for (int64_t i = 0; i < args.cols; i += kLanes) {
      Vec gate = load(acc + 2 * i), up = load(acc + 2 * i + kLanes);
      if (args.bias) {
        gate = gate + load(args.bias + 2 * i);
        up = up + load(args.bias + 2 * i + kLanes);
      }
      store(y + i, apply<kSilu>(round_to<T>(gate), 0, 0) * round_to<T>(up));
    }
  }
}

// y = gated(gate, up), both of x.
template <typename T, typename Gated>
void gate_rows(const SiluMulArgs& args, Gated gated) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for (int64_t i = 0; i < args.cols; i += kLanes) store(y + i, gated(load(x + 2 * i), load(x + 2 * i + kLanes)));
  }
}

template <typename T, UnaryOp op>
void activated_mul(const SiluMulArgs& args) {
  gate_rows<T>(args, [](Vec gate, Vec up) { return apply<op>(gate, 0, 0) * up; });
}

template <typename T>
void clamped_glu(const ClampedGluArgs& args) {
  const Vec one = broadcast(1.0f), alpha = broadcast(args.alpha), limit = broadcast(args.limit);
  const Vec none = broadcast(-__builtin_inff());
  gate_rows<T>(args.rows, [=](Vec gate, Vec up) {
    gate = clamp(gate, none, limit);
    return (clamp(up, -limit, limit) + one) * (gate / (one + exp(-(alpha * gate))));
  });
}

void exp_many(const float* x, float* y, int64_t count) {
  for_lanes(count, [&](int64_t i, auto lanes) { store(y + i, exp(load(x + i, lanes)), lanes); });
}

}  // namespace

void TCIM_LITE_USE(activation)(KernelTable& table) {
  enter(table.silu_mul_store, silu_mul_store<uint16_t>, silu_mul_store<float>);
  enter(table.silu_mul, activated_mul<uint16_t, kSilu>, activated_mul<float, kSilu>);
  enter(table.gelu_mul, activated_mul<uint16_t, kGeluTanh>, activated_mul<float, kGeluTanh>);
  enter(table.clamped_glu, clamped_glu<uint16_t>, clamped_glu<float>);
  table.exp = exp_many;
}

}  // namespace tcim_lite::cpu
