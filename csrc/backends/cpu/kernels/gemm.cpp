// Products of float matrices, 32 columns of the result at a time: Conv and MatMul.
#include "backends/cpu/kernels/simd.h"

namespace tcim_lite::cpu {
namespace {

// Rows and vectors of a tile: its sums, a vector of b for each column of them and a value of a fill the registers.
#if defined(__AVX512F__)
constexpr int kTileRows = 12, kTileVecs = 2;
#else
constexpr int kTileRows = 6, kTileVecs = 1;
#endif

template <int R>
void tile(const GemmArgs& args, int64_t row, int64_t column) {
  const float* a = args.a + row * args.a_stride;
  const float* b = args.b + column;
  Vec acc[R][kTileVecs];
  for (auto& sums : acc) {
    for (Vec& sum : sums) sum = broadcast(0.0f);
  }
  for (int64_t k = 0; k < args.k; ++k) {
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
    for (int v = 0; v < kTileVecs; ++v) store(args.acc + (row + r) * kPanel + column + v * kLanes, acc[r][v]);
  }
}

template <int R = kTileRows>
void rows_left(const GemmArgs& args, int64_t row, int64_t column) {
  if constexpr (R > 0) {
    if (args.rows - row >= R) return tile<R>(args, row, column);
    rows_left<R - 1>(args, row, column);
  }
}

void gemm(const GemmArgs& args) {
  for (int64_t row = 0; row < args.rows; row += kTileRows) {
    for (int64_t column = 0; column < kPanel; column += kTileVecs * kLanes) rows_left(args, row, column);
  }
}

template <typename T>
void gemm_store(const GemmStoreArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* acc = args.acc + row * kPanel;
    const T* residual = args.residual ? static_cast<const T*>(args.residual) + row * args.y_stride : nullptr;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    const Vec bias = broadcast(args.bias ? args.bias[row] : 0.0f);
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      Vec value = load(acc + i);
      if (args.bias) value = value + bias;
      if (residual) value = load(residual + i, lanes) + round_to<T>(value);
      store(y + i, value, lanes);
    });
  }
}

}  // namespace

void TCIM_LITE_USE(gemm)(KernelTable& table) {
  table.gemm = gemm;
  enter(table.gemm_store, gemm_store<uint16_t>, gemm_store<float>);
}

}  // namespace tcim_lite::cpu
