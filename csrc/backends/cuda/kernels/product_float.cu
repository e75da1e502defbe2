// float32 products: tiles of 64 rows and 64 columns, 4 x 4 of a thread.
#include "backends/cuda/kernels/dense.cuh"

namespace tcim_lite::cuda {
namespace {

constexpr int kTile = 64, kDepth = 16, kThreads = 256;

// A column of the second operand: where it begins, and for windows which position it reads from.
struct Column {
  const float* base;
  int y, x;
  bool inside;
};

__device__ __forceinline__ Column column_of(const ProductArgs& args, const float* b, int64_t n) {
  Column column{};
  column.inside = n < args.columns;
  if (!column.inside) return column;
  const int image = int(n / args.pixels), pixel = int(n % args.pixels);
  column.base = b + image * args.b_image;
  if (args.windows) {
    const WindowAxis &h = args.window.h, &w = args.window.w;
    column.y = pixel / w.out * h.stride - h.pad;
    column.x = pixel % w.out * w.stride - w.pad;
  } else {
    column.base += pixel * args.b_column;
  }
  return column;
}

__device__ __forceinline__ float term(const ProductArgs& args, const Column& column, int k) {
  if (!column.inside || k >= args.k) return 0;
  if (!args.windows) return column.base[k * args.b_row];
  const WindowAxis &h = args.window.h, &w = args.window.w;
  const int taps = h.kernel * w.kernel, channel = k / taps, tap = k % taps;
  const int y = index_of(h, column.y + tap / w.kernel * h.dilation);
  const int x = index_of(w, column.x + tap % w.kernel * w.dilation);
  return y < 0 || x < 0 ? 0.0f : column.base[channel * args.b_row + int64_t(y) * w.in + x];
}

__global__ void __launch_bounds__(kThreads) product_kernel(ProductArgs args, int row_tiles, int column_tiles) {
  __shared__ float a_tile[kDepth][kTile + 4];
  __shared__ float b_tile[kDepth][kTile];
  wait_for_inputs();
  launch_next();
  if (is_refused(args.refused)) return;
  const int first_row = int(blockIdx.x % row_tiles) * kTile;
  const int64_t rest = blockIdx.x / row_tiles, z = rest / column_tiles, first_column = rest % column_tiles * kTile;
  const float* a =
      static_cast<const float*>(args.a) + (args.a_offsets != nullptr ? args.a_offsets[z] : z * args.a_next);
  const float* b =
      static_cast<const float*>(args.b) + (args.b_offsets != nullptr ? args.b_offsets[z] : z * args.b_next);
  const int tid = threadIdx.x;
  const int a_row = tid / 4, a_k = tid % 4 * 4, b_column = tid % kTile, b_k = tid / kTile * 4;
  const Column column = column_of(args, b, first_column + b_column);
  const bool has_row = first_row + a_row < args.m;
  a += int64_t(first_row + a_row) * args.a_stride;
  float acc[4][4] = {};
  for (int first = 0; first < args.k; first += kDepth) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int k = first + a_k + i;
      a_tile[a_k + i][a_row] = has_row && k < args.k ? a[k] : 0.0f;
      b_tile[b_k + i][b_column] = term(args, column, first + b_k + i);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      const float4 x = *reinterpret_cast<const float4*>(&a_tile[k][tid / 16 * 4]);
      const float4 y = *reinterpret_cast<const float4*>(&b_tile[k][tid % 16 * 4]);
      const float rows[4] = {x.x, x.y, x.z, x.w}, columns[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[i][j] = fmaf(rows[i], columns[j], acc[i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int64_t n = first_column + tid % 16 * 4 + j;
    if (n >= args.columns) continue;
    const int64_t start = z * args.y_next + n / args.pixels * args.y_image + n % args.pixels;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + tid / 16 * 4 + i;
      if (row >= args.m) continue;
      const int64_t at = start + row * args.y_row;
      static_cast<float*>(args.y)[at] = finish<float>(args.end, int(z) * args.m + row, at, acc[i][j]);
    }
  }
}

}  // namespace

void launch_product_float(const ProductArgs& args, cudaStream_t stream) {
  const int row_tiles = (args.m + kTile - 1) / kTile, column_tiles = (args.columns + kTile - 1) / kTile;
  launch(product_kernel, dim3(unsigned(int64_t(row_tiles) * column_tiles * args.count)), dim3(kThreads), 0, stream,
         args, row_tiles, column_tiles);
}

}  // namespace tcim_lite::cuda
