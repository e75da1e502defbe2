// RMSNorm and RoPE.
#include "backends/cpu/kernels/vector/simd.h"

namespace tcim_lite::cpu {
namespace {

// 1 / sqrt(mean(x^2) + epsilon) of R rows. Each sum waits for its last fma, so several are made side by side.
template <int R, typename T>
void inverses(const RmsNormArgs& args, int64_t row, float* inverse) {
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
  Vec squares[R];  // never -0, so the zeros beyond the tail change nothing
  for (int r = 0; r < R; ++r) squares[r] = broadcast(0.0f);
  for_lanes(args.cols, [&](int64_t i, auto lanes) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec value = load(x + r * args.x_stride + i, lanes);
      squares[r] = fma(value, value, squares[r]);
    }
  });
  for (int r = 0; r < R; ++r)
    inverse[r] = 1.0f / __builtin_sqrtf(tree_sum(squares[r]) / float(args.cols) + args.epsilon);
}

template <typename T>
void scale_row(const RmsNormArgs& args, int64_t row, float inverse) {
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
  T* y = static_cast<T*>(args.y) + row * args.y_stride;
  const Vec factor = broadcast(inverse);
  for_lanes(args.cols, [&](int64_t i, auto lanes) {
    store(y + i, (load(x + i, lanes) * factor) * load(args.weight + i, lanes), lanes);
  });
}

template <typename T>
void rms_norm(const RmsNormArgs& args) {
  constexpr int kRows = 4;
  float inverse[kRows];
  int64_t row = 0;
  for (; row + kRows <= args.rows; row += kRows) {
    inverses<kRows, T>(args, row, inverse);
    for (int r = 0; r < kRows; ++r) scale_row<T>(args, row + r, inverse[r]);
  }
  for (; row < args.rows; ++row) {
    inverses<1, T>(args, row, inverse);
    scale_row<T>(args, row, inverse[0]);
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
