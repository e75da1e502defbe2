// Products of float matrices, 32 columns of the result at a time: Conv and MatMul.
#include "backends/cpu/kernels/conv/conv_end.h"

namespace tcim_lite::cpu {
namespace {

// Rows and vectors of a tile: its sums, a vector of b for each column of them and a value of a fill the registers.
#if defined(__AVX512F__)
constexpr int kTileRows = 12, kTileVecs = 2;
#else
constexpr int kTileRows = 6, kTileVecs = 1;
#endif

[[maybe_unused]] constexpr int64_t kRowsAhead = 8;  // whose lines are fetched while one is stored: they lie far apart

constexpr int64_t kSome = 256;  // terms at a time: their part of the panel stays in the first cache

// Terms [first, end). Meanwhile the terms of as many rows from `next` on, which are needed later, are fetched.
template <int R>
void tile(const GemmArgs& args, const float* next, int64_t first, int64_t end, int64_t row, int64_t column) {
  const float* a = args.a + row * args.a_stride;
  const float* b = args.b + column;
  float* to = args.acc + row * kPanel + column;
  Vec acc[R][kTileVecs];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kTileVecs; ++v) acc[r][v] = first == 0 ? broadcast(0.0f) : load(to + r * kPanel + v * kLanes);
  }
  for (int64_t k = first; k < end; ++k) {
    if (k % kLanes == 0) {
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) prefetch_near(next + r * args.a_stride + k);
    }
    Vec values[kTileVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kTileVecs; ++v) values[v] = load(b + k * kPanel + v * kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const Vec weight = broadcast(a[r * args.a_stride + k]);
#pragma GCC unroll 2
      for (int v = 0; v < kTileVecs; ++v) acc[r][v] = fma(weight, values[v], acc[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kTileVecs; ++v) store(to + r * kPanel + v * kLanes, acc[r][v]);
  }
}

template <int R = kTileRows>
void rows_left(const GemmArgs& args, const float* next, int64_t first, int64_t end, int64_t row, int64_t column) {
  if constexpr (R > 0) {
    if (args.rows - row >= R) return tile<R>(args, next, first, end, row, column);
    rows_left<R - 1>(args, next, first, end, row, column);
  }
}

void gemm(const GemmArgs& args) {
  for (int64_t first = 0; first < args.k; first += kSome) {
    const int64_t end = first + kSome < args.k ? first + kSome : args.k;
    for (int64_t row = 0; row < args.rows; row += kTileRows) {
      // Of the first rows of the next terms; a fetch of what does not exist has no effect.
      const float* next = row + kTileRows < args.rows ? args.a + (row + kTileRows) * args.a_stride : args.a + kSome;
      for (int64_t column = 0; column < kPanel; column += kTileVecs * kLanes)
        rows_left(args, next, first, end, row, column);
    }
  }
}

template <bool Adds, typename T>
void store_rows(const GemmStoreArgs& args) {
  // In locals: a store might change what args refers to.
  const EndOf<T> end(args.end);
  const int64_t cols = args.cols, stride = args.y_stride;
  const float *acc = args.acc, *bias = args.bias;
  const T* residual = Adds ? static_cast<const T*>(args.residual) : nullptr;
  T* y = static_cast<T*>(args.y);
  for (int64_t left = args.rows; left > 0; --left, acc += kPanel, y += stride) {
#if defined(__AVX2__) && !defined(__AVX512F__)  // a fetch of what does not exist has no effect
    if (Adds) prefetch_near(residual + kRowsAhead * stride);
    prefetch_near(y + kRowsAhead * stride);
#endif
    if (cols == kPanel) {
      end.store_sum(load(acc), bias, residual, y, 0, Full{});
      end.store_sum(load(acc + kLanes), bias, residual, y, kLanes, Full{});
    } else {
      for_lanes(cols, [=](int64_t i, auto lanes) { end.store_sum(load(acc + i), bias, residual, y, i, lanes); });
    }
    if (bias) ++bias;
    if (Adds) residual += stride;
  }
}

template <typename T>
void gemm_store(const GemmStoreArgs& args) {
  args.residual ? store_rows<true, T>(args) : store_rows<false, T>(args);
}

}  // namespace

void TCIM_LITE_USE(gemm)(KernelTable& table) {
  table.gemm = gemm;
  enter(table.gemm_store, gemm_store<uint16_t>, gemm_store<float>);
}

}  // namespace tcim_lite::cpu
