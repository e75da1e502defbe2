#include "backends/cpu/reference/element.h"
#include "backends/cpu/reference/functions.h"

namespace tcim_lite::cpu {

// docs/numerics.md section 5. NaN stays.
float exp_ref(float x) { return x < -0x1.5d589ep+6f ? 0.0f : exp_one(x > 88.0f ? 88.0f : x); }

namespace {

template <typename Row>
void silu_mul_store(const SiluMulStoreArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* acc = args.acc + row * args.acc_stride;
    void* y = Row::at(args.y, row * args.y_stride);
    for (int64_t i = 0; i < args.cols; ++i) {
      const int64_t gate = i / 16 * 32 + i % 16, up = gate + 16;
      const float g = Row::round(args.bias ? acc[gate] + args.bias[gate] : acc[gate]);
      const float u = Row::round(args.bias ? acc[up] + args.bias[up] : acc[up]);
      Row::store(y, i, apply<kSilu>(Lane{g}, 0, 0).v * u);
    }
  }
}

// y = gated(gate, up), both of x.
template <typename Row, typename Gated>
void gate_rows(const SiluMulArgs& args, Gated gated) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* x = Row::at(args.x, row * args.x_stride);
    void* y = Row::at(args.y, row * args.y_stride);
    for (int64_t i = 0; i < args.cols; ++i) {
      const int64_t at = i / 16 * 32 + i % 16;
      Row::store(y, i, gated(Row::load(x, at), Row::load(x, at + 16)));
    }
  }
}

template <typename Row, UnaryOp op>
void activated_mul(const SiluMulArgs& args) {
  gate_rows<Row>(args, [](float gate, float up) { return apply<op>(Lane{gate}, 0, 0).v * up; });
}

template <typename Row>
void clamped_glu(const ClampedGluArgs& args) {
  const float alpha = args.alpha, limit = args.limit;
  gate_rows<Row>(args.rows, [=](float gate, float up) {
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
    return (up + 1.0f) * (gate / (1.0f + exp_ref(-(alpha * gate))));
  });
}

void exp_many(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = exp_ref(x[i]);
}

}  // namespace

void use_activation_ref(KernelTable& table) {
  enter(table.silu_mul_store, silu_mul_store<F16Row>, silu_mul_store<F32Row>);
  enter(table.silu_mul, activated_mul<F16Row, kSilu>, activated_mul<F32Row, kSilu>);
  enter(table.gelu_mul, activated_mul<F16Row, kGeluTanh>, activated_mul<F32Row, kGeluTanh>);
  enter(table.clamped_glu, clamped_glu<F16Row>, clamped_glu<F32Row>);
  table.exp = exp_many;
}

}  // namespace tcim_lite::cpu
