#include <cmath>

#include "backends/cpu/kernels/vector/element_ref.h"

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
  enter(table.resample, resample<kF16>, resample<kF32>);
}

}  // namespace tcim_lite::cpu
