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
  const T* x;  // what the middle of the first window reads
  T* y;
  int64_t rows, cols, in_rows, in_cols;  // in_rows: from x on
  bool padded;

  template <typename Lanes, typename Low, typename High>
  void columns(int64_t column, Lanes lanes, Low low, High high) const {
    const Vec least = broadcast(-__builtin_inff());
    const auto taps_of = [&](int64_t row) __attribute__((always_inline)) {
      const T* from = x + row * in_cols;
      const bool outside = padded || column > 0;  // or not read
      const Vec before = outside ? least : broadcast(first_lane(load(from - 1, Tail(1))));
      return neighbours_apart(from, column, before, low, high);
    };
    const auto largest_of = [](const Three& three) {
      return larger(larger(three.taps[0], three.taps[1]), three.taps[2]);
    };
    Vec above = padded ? least : largest_of(taps_of(-1));
    for (int64_t row = 0; row < rows; ++row) {
      Vec result = larger(above, largest_behind(least, taps_of(2 * row)));
      if (2 * row + 1 < in_rows) {
        const Three three = taps_of(2 * row + 1);
        result = larger(result, largest_behind(least, three));
        above = largest_of(three);
      }
      store(y + row * cols + column, result, lanes);
    }
  }

  void run() const {
    for_lanes(cols, [&](int64_t column, auto lanes) {
      split_lanes(2 * (cols - column), lanes, [&](auto low, auto high) { columns(column, lanes, low, high); });
    });
  }
};

template <typename T>
void pool_planes(const PoolPlanesArgs& args) {
  const int64_t in_rows = args.in_rows, in_cols = args.in_cols, rows = args.rows, cols = args.cols;
  const int64_t above = args.padded ? 0 : 1;
  for (int64_t plane = 0; plane < args.planes; ++plane) {
    const T* x = static_cast<const T*>(args.x) + plane * in_rows * in_cols + above * (in_cols + 1);
    T* y = static_cast<T*>(args.y) + plane * rows * cols;
    PlaneOfPool<T>{x, y, rows, cols, in_rows - above, in_cols, args.padded}.run();
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
