// The end of a float16 product: results in shared memory become elements of y.
#pragma once

#include "backends/cuda/kernels/dense.cuh"
#include "backends/cuda/kernels/kernels.h"

namespace tcim_lite::cuda {

// Where a tile's rounded sums with their bias lie: row by row, or column by column where y is last.
template <int Rows, int Columns>
struct Results {
  static constexpr int kRow = Columns + 8, kColumn = Rows + 8;  // halves from one to the next
  static constexpr int kBytes = (Rows * kRow > Columns * kColumn ? Rows * kRow : Columns * kColumn) * 2;
};

struct EndPlace {
  int y_each;  // columns of y that are stored at once: 8, or 1
};

inline bool aligned(const void* address, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % uintptr_t(bytes) == 0;
}

inline EndPlace end_place(const ProductArgs& args) {
  const bool wide = aligned(args.y, 16) && aligned(args.end.residual, 16) && args.pixels % 8 == 0 &&
                    args.first % 8 == 0 && args.y_next % 8 == 0 && args.y_row % 8 == 0 && args.y_image % 8 == 0;
  return {wide ? 8 : 1};
}

// Eight neighbours of y, from rounded sums with their bias.
__device__ __forceinline__ uint4 finish8(const ConvEnd& end, uint4 raw, bool adds, uint4 other) {
  if (!adds && end.function < 0) return raw;
  __half* v = reinterpret_cast<__half*>(&raw);
  if (adds) {
    const __half* added = reinterpret_cast<const __half*>(&other);
#pragma unroll
    for (int e = 0; e < 8; ++e) v[e] = to_half(__half2float(added[e]) + __half2float(v[e]));
  }
  if (end.function == kRelu) {
#pragma unroll
    for (int e = 0; e < 8; ++e) v[e] = to_half(apply<kRelu>(__half2float(v[e]), 0, 0));
  } else if (end.function == kSilu) {
#pragma unroll
    for (int e = 0; e < 8; ++e) v[e] = to_half(apply<kSilu>(__half2float(v[e]), 0, 0));
  } else if (end.function >= 0) {
#pragma unroll 1
    for (int e = 0; e < 8; ++e) v[e] = to_half(apply_unary(end.function, __half2float(v[e]), end.alpha, end.beta));
  }
  return raw;
}

// Pieces of 8 neighbours, `Count` of them at a time so that the residual's loads wait together: piece i is at
// at(i) of y and from(i) of the results; false: there is none.
template <int Count, typename At>
__device__ __forceinline__ void store_pieces(const ConvEnd& end, __half* y, const __half* residual,
                                             const __half* results, const At& at) {
  int64_t to[Count];
  int from[Count];
  bool is[Count];
  uint4 other[Count];
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    is[i] = at(i, to[i], from[i]);
    if (is[i] && residual != nullptr) other[i] = *reinterpret_cast<const uint4*>(residual + to[i]);
  }
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    if (!is[i]) continue;
    const uint4 raw = *reinterpret_cast<const uint4*>(results + from[i]);
    *reinterpret_cast<uint4*>(y + to[i]) = finish8(end, raw, residual != nullptr, other[i]);
  }
}

// Behind a barrier.
template <int Rows, int Columns, int Threads>
__device__ __forceinline__ void store_results(const ProductArgs& args, const EndPlace& place, const __half* results,
                                              int64_t z, int first_row, int64_t first_column) {
  using E = Results<Rows, Columns>;
  constexpr int kAtOnce = 4;
  const int tid = threadIdx.x;
  ConvEnd end = args.end;
  end.bias = nullptr;
  auto* y = static_cast<__half*>(args.y) + z * args.y_next;
  const auto* residual = static_cast<const __half*>(end.residual);
  if (residual != nullptr) residual += z * args.y_next;
  if (args.y_last) {
    constexpr int kChunks = Rows / 8, kApart = Threads / kChunks;
    const int row = tid % kChunks * 8;
    if (first_row + row >= args.m) return;
    for (int first = tid / kChunks; first < Columns; first += kApart * kAtOnce) {
      store_pieces<kAtOnce>(end, y, residual, results, [&](int i, int64_t& to, int& from) {
        const int column = first + i * kApart;
        to = (first_column + args.first + column) * args.m + first_row + row;
        from = column * E::kColumn + row;
        return column < Columns && first_column + column < args.columns;
      });
    }
    return;
  }
  if (place.y_each == 8) {
    constexpr int kChunks = Columns / 8, kApart = Threads / kChunks;
    const int64_t n = first_column + tid % kChunks * 8;
    if (n >= args.columns) return;
    const int64_t start = (n + args.first) / args.pixels * args.y_image + (n + args.first) % args.pixels;
    for (int first = tid / kChunks; first < Rows; first += kApart * kAtOnce) {
      store_pieces<kAtOnce>(end, y, residual, results, [&](int i, int64_t& to, int& from) {
        const int row = first + i * kApart;
        to = start + (first_row + row) * args.y_row;
        from = row * E::kRow + tid % kChunks * 8;
        return row < Rows && first_row + row < args.m;
      });
    }
    return;
  }
  const int64_t n = first_column + tid % Columns;
  if (n >= args.columns) return;
  const int64_t start = (n + args.first) / args.pixels * args.y_image + (n + args.first) % args.pixels;
  for (int row = tid / Columns; row < Rows && first_row + row < args.m; row += Threads / Columns) {
    const int64_t at = start + (first_row + row) * args.y_row;
    store(y + at, finish<__half>(end, 0, z * args.y_next + at, __half2float(results[row * E::kRow + tid % Columns])));
  }
}

}  // namespace tcim_lite::cuda
