// Pooling and resampling.
#include "backends/cpu/kernels/vector/functions_simd.h"

namespace tcim_lite::cpu {
namespace {

template <typename T>
void pool(const PoolArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    const float* counts = args.counts ? args.counts + row * args.cols : nullptr;
    T* y = static_cast<T*>(args.y) + row * args.cols;
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      Vec result = load(x + args.offsets[0] + i);
      for (int64_t tap = 1; tap < args.taps; ++tap) {
        const Vec value = load(x + args.offsets[tap] + i);
        result = counts ? result + value : larger(result, value);
      }
      if (counts) result = result / load(counts + i, lanes);
      store(y + i, result, lanes);
    });
  }
}

// Of up to 16 rows of single elements: turned, so that lanes are rows.
template <typename T>
void resample_turned(const ResampleArgs& args) {
  static_assert(kTurnedRows == kLanes);
  const T* x = static_cast<const T*>(args.x);
  T* y = static_cast<T*>(args.y);
  Vec tile[kLanes];
  for_lanes(args.extent, [&](int64_t i, auto lanes) {
    for (int64_t row = 0; row < kLanes; ++row)
      tile[row] = row < args.rows ? load(x + row * args.extent + i, lanes) : broadcast(0.0f);
    transpose(tile);
    for (int64_t j = 0; j < kLanes; ++j) store(args.scratch + (i + j) * kLanes, tile[j]);
  });
  for_lanes(args.count, [&](int64_t i, auto lanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const int64_t place = (i + j < args.count ? i + j : i) * args.taps;
      Vec sum = broadcast(0.0f);
      for (int64_t tap = place; tap < place + args.taps; ++tap)
        sum = fma(broadcast(args.weights[tap]), load(args.scratch + args.indices[tap] * kLanes), sum);
      tile[j] = sum;
    }
    transpose(tile);
    for (int64_t row = 0; row < args.rows; ++row) store(y + row * args.count + i, tile[row], lanes);
  });
}

template <typename T>
void resample(const ResampleArgs& args) {
  if (args.rows > 1) return resample_turned<T>(args);
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
