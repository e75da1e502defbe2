// Pooling over panels, and resampling.
#include "backends/cpu/kernels/functions_simd.h"

namespace tcim_lite::cpu {
namespace {

template <typename T>
void pool(const PoolArgs& args) {
  T* y = static_cast<T*>(args.y);
  for_lanes(args.cols, [&](int64_t i, auto lanes) {
    Vec result = load(args.panel + i);
    for (int64_t tap = 1; tap < args.taps; ++tap) {
      const Vec value = load(args.panel + tap * kPanel + i);
      result = args.counts != nullptr ? result + value : larger(result, value);
    }
    if (args.counts != nullptr) result = result / load(args.counts + i);
    store(y + i, result, lanes);
  });
}

template <typename T>
void resample(const ResampleArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  T* y = static_cast<T*>(args.y);
  for (int64_t row = 0; row < args.count; ++row) {
    const int32_t* indices = args.indices + row * args.taps;
    const float* weights = args.weights + row * args.taps;
    for_lanes(args.inner, [&](int64_t i, auto lanes) {
      Vec sum = broadcast(0.0f);
      for (int64_t tap = 0; tap < args.taps; ++tap)
        sum = fma(broadcast(weights[tap]), load(x + indices[tap] * args.inner + i, lanes), sum);
      store(y + row * args.inner + i, sum, lanes);
    });
  }
}

}  // namespace

void TCIM_LITE_USE(window)(KernelTable& table) {
  enter(table.pool, pool<uint16_t>, pool<float>);
  enter(table.resample, resample<uint16_t>, resample<float>);
}

}  // namespace tcim_lite::cpu
