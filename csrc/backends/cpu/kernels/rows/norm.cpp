// RMSNorm and RoPE.
#include "backends/cpu/kernels/vector/simd.h"

namespace tcim_lite::cpu {
namespace {

template <typename T>
void rms_norm(const RmsNormArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    Vec squares = broadcast(0.0f);  // never -0, so the zeros beyond the tail change nothing
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      const Vec value = load(x + i, lanes);
      squares = fma(value, value, squares);
    });
    const float mean = tree_sum(squares) / float(args.cols);
    const Vec inverse = broadcast(1.0f / __builtin_sqrtf(mean + args.epsilon));
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      store(y + i, (load(x + i, lanes) * inverse) * load(args.weight + i, lanes), lanes);
    });
  }
}

template <typename T>
void rope(const RopeArgs& args) {
  const int64_t half = args.head_dim / 2;
  for (int64_t head = 0; head < args.heads; ++head) {
    const T* x = static_cast<const T*>(args.x) + head * args.x_stride;
    T* y = static_cast<T*>(args.y) + head * args.y_stride;
    for_lanes(half, [&](int64_t i, auto lanes) {
      const Vec x1 = load(x + i, lanes), x2 = load(x + half + i, lanes);
      const Vec cos = load(args.cos + i, lanes), sin = load(args.sin + i, lanes);
      store(y + i, fma(-x2, sin, x1 * cos), lanes);
      store(y + half + i, fma(x1, sin, x2 * cos), lanes);
    });
  }
}

}  // namespace

void TCIM_LITE_USE(norm)(KernelTable& table) {
  enter(table.rms_norm, rms_norm<uint16_t>, rms_norm<float>);
  enter(table.rope, rope<uint16_t>, rope<float>);
}

}  // namespace tcim_lite::cpu
