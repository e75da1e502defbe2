#include "backends/cpu/reference/conv_end.h"

namespace tcim_lite::cpu {
namespace {

template <Elem E>
void pool(const PoolArgs& args) {
  for (int64_t i = 0; i < args.rows * args.cols; ++i) {
    const float* x = args.x + i / args.cols * args.x_stride + i % args.cols;
    float result = x[args.offsets[0]];
    for (int64_t tap = 1; tap < args.taps; ++tap) {
      const float value = x[args.offsets[tap]];
      result = args.counts != nullptr ? result + value : result < value ? value : result;
    }
    RefRow<E>::store(args.y, i, args.counts != nullptr ? result / args.counts[i] : result);
  }
}

template <Elem E>
void pool_planes(const PoolPlanesArgs& args) {
  const int64_t pad = args.padded ? 1 : 0, rows = args.rows, cols = args.cols;
  const BlockWindow::Axis h{args.in_rows, 3, 2, pad, 1}, w{args.in_cols, 3, 2, pad, 1};
  for (int64_t i = 0; i < args.planes * rows * cols; ++i) {
    const void* x = RefRow<E>::at(args.x, i / cols / rows * args.in_rows * args.in_cols);
    const auto value_at = [&](int64_t r, int64_t c) { return RefRow<E>::load(x, r * args.in_cols + c); };
    float result = 0;
    for_taps(h, w, i / cols % rows, i % cols, -INFINITY, value_at,
             [&](int64_t tap, float value) { result = tap == 0 || result < value ? value : result; });
    RefRow<E>::store(args.y, i, result);
  }
}

template <Elem E>
void resample(const ResampleArgs& args) {
  for (int64_t row = 0; row < args.rows * args.count; ++row) {
    const int64_t o = row / args.count, place = row % args.count * args.taps;
    for (int64_t i = 0; i < args.inner; ++i) {
      float sum = 0;
      for (int64_t tap = place; tap < place + args.taps; ++tap) {
        const int64_t from = o * args.extent + args.indices[tap];
        sum = std::fmaf(args.weights[tap], RefRow<E>::load(args.x, from * args.inner + i), sum);
      }
      RefRow<E>::store(args.y, row * args.inner + i, sum);
    }
  }
}

}  // namespace

void use_window_ref(KernelTable& table) {
  enter(table.pool, pool<kF16>, pool<kF32>);
  enter(table.pool_planes, pool_planes<kF16>, pool_planes<kF32>);
  enter(table.resample, resample<kF16>, resample<kF32>);
}

}  // namespace tcim_lite::cpu
