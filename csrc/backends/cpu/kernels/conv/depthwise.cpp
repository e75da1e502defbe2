// Convolutions channel by channel, from planes with their padding around them.
#include "backends/cpu/kernels/conv/conv_end.h"

namespace tcim_lite::cpu {
namespace {

constexpr int kRows = kSums < 16 ? 4 : 8;

// Up to kRows rows of outputs from `row` on, of 16 columns from `column` on: they share the reads of weights and of
// where taps lie. Behind the last row it is computed again, as sums wait for one another anyway.
template <typename T, typename Lanes>
void some_rows(const DepthwiseArgs& args, EndOf<T> end, int64_t row, int64_t column, Lanes lanes) {
  const int64_t count = args.rows - row < kRows ? args.rows - row : kRows;
  const float* rows[kRows];
  Vec sums[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    rows[r] = args.x + (row + (r < count ? r : count - 1)) * args.x_stride + column;
    sums[r] = broadcast(0.0f);
  }
  for (int64_t tap = 0; tap < args.taps; ++tap) {
    const Vec weight = broadcast(args.weights[tap]);
    const int64_t offset = args.offsets[tap];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r] = fma(weight, load(rows[r] + offset), sums[r]);
  }
  for (int r = 0; r < kRows && r < count; ++r) {
    const int64_t at = (row + r) * args.cols;
    end.store_sum(sums[r], args.bias, args.residual ? static_cast<const T*>(args.residual) + at : nullptr,
                  static_cast<T*>(args.y) + at, column, lanes);
  }
}

template <typename T>
void depthwise(const DepthwiseArgs& args) {
  const EndOf<T> end(args.end);
  for (int64_t row = 0; row < args.rows; row += kRows)
    for_lanes(args.cols, [&](int64_t column, auto lanes) { some_rows(args, end, row, column, lanes); });
}

// How many rows the kernel has, if they are as far apart as rows of the output: neighbouring outputs share rows of the
// input. 1: they are not. Unused where registers are too few.
[[maybe_unused]] int64_t shared_rows_of(const DepthwiseArgs& args) {
  int64_t width = 1;
  while (width < args.taps && args.offsets[width] != args.offsets[0] + args.x_stride) ++width;
  if (args.taps % width != 0) return 1;
  for (int64_t tap = width; tap < args.taps; ++tap) {
    if (args.offsets[tap] != args.offsets[tap - width] + args.x_stride) return 1;
  }
  return args.taps / width;
}

// V vectors of columns from `column` on, all rows, of a kernel of K rows: every row of the input is loaded once, for K
// rows of outputs. The last vector has `lanes`.
template <int K, int V, typename T, typename Lanes>
void shared_rows(const DepthwiseArgs& args, EndOf<T> end, int64_t column, Lanes lanes) {
  const T* residual = args.residual ? static_cast<const T*>(args.residual) : nullptr;
  T* y = static_cast<T*>(args.y);
  const int64_t width = args.taps / K;
  Vec sums[V][K];  // [i]: of the row of outputs whose taps of row i come now
  for (int v = 0; v < V; ++v) {
    for (int i = 0; i < K; ++i) sums[v][i] = broadcast(0.0f);
  }
  const float* x = args.x + column;
  for (int64_t row = 0; row < args.rows + K - 1; ++row, x += args.x_stride) {
    for (int64_t j = 0; j < width; ++j) {
      const float* read = x + args.offsets[j];
      Vec values[V];
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) values[v] = load(read + v * kLanes);
#pragma GCC unroll 7
      for (int i = 0; i < K; ++i) {
        const Vec weight = broadcast(args.weights[i * width + j]);
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) sums[v][i] = fma(weight, values[v], sums[v][i]);
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      const Vec sum = sums[v][K - 1];
#pragma GCC unroll 7
      for (int i = K - 1; i > 0; --i) sums[v][i] = sums[v][i - 1];
      sums[v][0] = broadcast(0.0f);
      if (row < K - 1) continue;
      const int64_t at = (row - (K - 1)) * args.cols, place = column + v * kLanes;
      if (v < V - 1)
        end.store_sum(sum, args.bias, residual ? residual + at : nullptr, y + at, place, Full{});
      else
        end.store_sum(sum, args.bias, residual ? residual + at : nullptr, y + at, place, lanes);
    }
  }
}

// Two vectors at a time: one leaves the multipliers waiting for sums.
template <int K, typename T>
void depthwise_of_shared_rows(const DepthwiseArgs& args) {
  const EndOf<T> end(args.end);
  int64_t column = 0;
  for (; args.cols - column >= 2 * kLanes; column += 2 * kLanes) shared_rows<K, 2, T>(args, end, column, Full{});
  const int64_t left = args.cols - column;
  if (left > kLanes) return shared_rows<K, 2, T>(args, end, column, Tail(left - kLanes));
  if (left == kLanes) return shared_rows<K, 1, T>(args, end, column, Full{});
  if (left > 0) shared_rows<K, 1, T>(args, end, column, Tail(left));
}

template <typename T>
void by_taps(const DepthwiseArgs& args) {
  if constexpr (kSums > 2 * 7) {
    const int64_t rows = shared_rows_of(args);
    // As many rows of the input as the kernel has are read for fewer outputs each.
    if (rows == 5 && args.rows > 5) return depthwise_of_shared_rows<5, T>(args);
    if (rows == 7 && args.rows > 7) return depthwise_of_shared_rows<7, T>(args);
  }
  depthwise<T>(args);
}

}  // namespace

void TCIM_LITE_USE(depthwise)(KernelTable& table) { enter(table.depthwise, by_taps<uint16_t>, by_taps<float>); }

}  // namespace tcim_lite::cpu
