// What convolutions need beside products: weights in the order of the tensor cores' stages, and for quantised weights
// the unfolded input as rows of a Linear and the way back from its rows.
#include "backends/cuda/kernels/dense.cuh"
#include "backends/cuda/kernels/kernels.h"

namespace tcim_lite::cuda {
namespace {

constexpr int64_t kDepth = 32;  // terms of a stage (product_half.cu)

__global__ void layout_kernel(const uint16_t* from, uint16_t* to, int64_t rows, int64_t channels, int64_t taps,
                              ProductLayout layout) {
  const int64_t i = first_element();
  if (i >= rows * layout.row) return;
  const int64_t row = i / layout.row, k = i % layout.row;
  int64_t channel, tap;
  if (layout.by_taps) {
    const int64_t padded = layout.row / taps;
    tap = k / padded;
    channel = k % padded;
  } else {
    channel = k / taps;
    tap = k % taps;
  }
  to[i] = channel < channels ? from[(row * channels + channel) * taps + tap] : uint16_t(0);
}

// Grid: (32 pixels, 64 inputs). A warp has 8 inputs of its 32 pixels.
__global__ void unfold_kernel(ConvArgs args, uint16_t* to, int64_t first, int64_t rows, int inputs) {
  wait_for_inputs();
  launch_next();
  const int64_t row = int64_t(blockIdx.x) * 32 + threadIdx.x % 32;
  if (row >= rows) return;
  const WindowAxis &h = args.window.h, &w = args.window.w;
  const int taps = h.kernel * w.kernel, pixels = h.out * w.out;
  const int image = int((first + row) / pixels), pixel = int((first + row) % pixels);
  const int y = pixel / w.out * h.stride - h.pad, x = pixel % w.out * w.stride - w.pad;
  const int64_t in_pixels = int64_t(h.in) * w.in;
  const auto* from = static_cast<const uint16_t*>(args.x) + image * args.channels * in_pixels;
  const int k = blockIdx.y * 64 + threadIdx.x / 32 * 8;
  int channel = k / taps, i = k % taps / w.kernel, j = k % taps % w.kernel;
  __align__(16) uint16_t v[8];
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const int in_row = index_of(h, y + i * h.dilation), column = index_of(w, x + j * w.dilation);
    const bool inside = channel < args.channels && in_row >= 0 && column >= 0;
    v[n] = inside ? from[channel * in_pixels + int64_t(in_row) * w.in + column] : uint16_t(0);
    if (++j < w.kernel) continue;
    j = 0;
    if (++i < h.kernel) continue;
    i = 0;
    ++channel;
  }
  *reinterpret_cast<uint4*>(to + row * inputs + k) = *reinterpret_cast<const uint4*>(v);
}

// Grid: (32 pixels, 32 channels); 8 warps.
__global__ void fold_end_kernel(ConvArgs args, const __half* sums, int64_t first, int64_t rows) {
  __shared__ __half tile[32][33];
  wait_for_inputs();
  launch_next();
  if (is_refused(args.refused)) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t row = int64_t(blockIdx.x) * 32;
  const int channel = blockIdx.y * 32;
  for (int i = warp; i < 32; i += 8) {
    if (row + i < rows && channel + lane < args.outputs)
      tile[i][lane] = sums[(row + i) * args.outputs + channel + lane];
  }
  __syncthreads();
  const int pixels = args.window.h.out * args.window.w.out;
  const int64_t n = first + row + lane;
  if (row + lane >= rows) return;
  const int64_t start = n / pixels * args.outputs * pixels + n % pixels;
  for (int i = warp; i < 32 && channel + i < args.outputs; i += 8) {
    const int64_t at = start + int64_t(channel + i) * pixels;
    store(static_cast<__half*>(args.y) + at, finish<__half>(args.end, 0, at, __half2float(tile[lane][i])));
  }
}

}  // namespace

ProductLayout product_layout(int64_t channels, int64_t taps) {
  const int64_t padded = (channels + kDepth - 1) / kDepth * kDepth;
  // A third more terms cost less than the places of single terms.
  if (taps == 1 || 3 * padded <= 4 * channels) return {true, padded * taps};
  return {false, (channels * taps + kDepth - 1) / kDepth * kDepth};
}

bool needs_layout(int64_t channels, int64_t taps) { return taps != 1 || channels % 8 != 0; }

void launch_product_layout(const void* weights, void* to, int64_t rows, int64_t channels, int64_t taps,
                           cudaStream_t stream) {
  const ProductLayout layout = product_layout(channels, taps);
  break_overlap();
  launch(layout_kernel, blocks_for(rows * layout.row), dim3(kDenseThreads), 0, stream,
         static_cast<const uint16_t*>(weights), static_cast<uint16_t*>(to), rows, channels, taps, layout);
}

void launch_unfold(const ConvArgs& args, void* x, int64_t first, int64_t rows, int64_t inputs, cudaStream_t stream) {
  launch(unfold_kernel, dim3(unsigned((rows + 31) / 32), unsigned(inputs / 64)), dim3(256), 0, stream, args,
         static_cast<uint16_t*>(x), first, rows, int(inputs));
}

void launch_fold_end(const ConvArgs& args, const void* sums, int64_t first, int64_t rows, cudaStream_t stream) {
  launch(fold_end_kernel, dim3(unsigned((rows + 31) / 32), unsigned((args.outputs + 31) / 32)), dim3(256), 0, stream,
         args, static_cast<const __half*>(sums), first, rows);
}

}  // namespace tcim_lite::cuda
