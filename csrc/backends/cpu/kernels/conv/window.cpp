// Pooling and resampling.
#include "backends/cpu/kernels/conv/neighbours.h"
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

inline Vec largest_behind(Vec first, const Three& three) {
  return larger(larger(larger(first, three.taps[0]), three.taps[1]), three.taps[2]);
}

// The largest of each row, then of three rows: of equal zeros the first stays. A NaN stays only in the first tap of
// all, so that of the other rows is left out.
template <typename T>
struct PlaneOfPool {
  const T* x;
  T* y;
  int64_t in_rows, in_cols;

  template <typename Lanes, typename Low, typename High>
  void columns(int64_t column, Lanes lanes, Low low, High high) const {
    const Vec least = broadcast(-__builtin_inff());
    Vec above = least;
    for (int64_t row = 0; row < in_rows; row += 2) {
      const T* from = x + row * in_cols;
      Vec result = larger(above, largest_behind(least, neighbours_apart(from, column, least, low, high)));
      if (row + 1 < in_rows) {
        const Three three = neighbours_apart(from + in_cols, column, least, low, high);
        result = larger(result, largest_behind(least, three));
        above = larger(larger(three.taps[0], three.taps[1]), three.taps[2]);
      }
      store(y + row / 2 * (in_cols / 2) + column, result, lanes);
    }
  }

  void run() const {
    for_lanes(in_cols / 2, [&](int64_t column, auto lanes) {
      split_lanes(in_cols - 2 * column, lanes, [&](auto low, auto high) { columns(column, lanes, low, high); });
    });
  }
};

template <typename T>
void pool_planes(const PoolPlanesArgs& args) {
  const int64_t in_rows = args.in_rows, in_cols = args.in_cols, of_plane = (in_rows + 1) / 2 * (in_cols / 2);
  for (int64_t plane = 0; plane < args.planes; ++plane) {
    const T* x = static_cast<const T*>(args.x) + plane * in_rows * in_cols;
    PlaneOfPool<T>{x, static_cast<T*>(args.y) + plane * of_plane, in_rows, in_cols}.run();
  }
}

// Of up to 16 rows of single elements: turned, so that lanes are rows.
template <typename T>
void resample_turned(const ResampleArgs& args) {
  static_assert(kTurnedRows == kLanes);
  const T* x = static_cast<const T*>(args.x);
  T* y = static_cast<T*>(args.y);
  turn_rows(args.rows, args.extent, [&](int64_t row) { return x + row * args.extent; }, args.scratch, kLanes);
  for_lanes(args.count, [&](int64_t i, auto lanes) {
    Vec tile[kLanes];
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
  enter(table.pool_planes, pool_planes<uint16_t>, pool_planes<float>);
  enter(table.resample, resample<uint16_t>, resample<float>);
}

}  // namespace tcim_lite::cpu
