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
  const int64_t channel = layout.tap > 0 ? k % layout.tap : k / taps, tap = layout.tap > 0 ? k / layout.tap : k % taps;
  to[i] = channel < channels ? from[(row * channels + channel) * taps + tap] : uint16_t(0);
}

// A thread for 8 channels of a pixel; neighbours have neighbouring pixels.
__global__ void channels_last_kernel(const uint16_t* from, uint4* to, int64_t count, int channels, int64_t pixels) {
  wait_for_inputs();
  launch_next();
  const int64_t i = first_element();
  if (i >= count) return;
  const int eights = (channels + 7) / 8;
  const int64_t pixel = i % pixels, eight = i / pixels % eights, image = i / pixels / eights;
  from += (image * channels + eight * 8) * pixels + pixel;
  __align__(16) uint16_t v[8];
#pragma unroll
  for (int n = 0; n < 8; ++n) v[n] = eight * 8 + n < channels ? from[n * pixels] : uint16_t(0);
  to[(image * pixels + pixel) * eights + eight] = *reinterpret_cast<const uint4*>(v);
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
  const int64_t channel_step = args.x_last ? 1 : in_pixels, pixel_step = args.x_last ? args.channels : 1;
  const int k = blockIdx.y * 64 + threadIdx.x / 32 * 8;
  int channel = k / taps, i = k % taps / w.kernel, j = k % taps % w.kernel;
  __align__(16) uint16_t v[8];
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const int in_row = index_of(h, y + i * h.dilation), column = index_of(w, x + j * w.dilation);
    const bool inside = channel < args.channels && in_row >= 0 && column >= 0;
    v[n] = inside ? from[channel * channel_step + (int64_t(in_row) * w.in + column) * pixel_step] : uint16_t(0);
    if (++j < w.kernel) continue;
    j = 0;
    if (++i < h.kernel) continue;
    i = 0;
    ++channel;
  }
  *reinterpret_cast<uint4*>(to + row * inputs + k) = *reinterpret_cast<const uint4*>(v);
}

// The same of an input that is last, where nothing is padded: a thread has 8 channels of a pixel, which are 8 * Taps
// neighbouring terms.
template <int Taps>
__global__ void unfold_last_kernel(ConvArgs args, uint4* to, int64_t first, int64_t rows) {
  wait_for_inputs();
  launch_next();
  const int eights = args.channels / 8;
  const int64_t i = first_element();
  const int64_t row = i / eights;
  if (row >= rows) return;
  const WindowAxis &h = args.window.h, &w = args.window.w;
  const int pixels = h.out * w.out, image = int((first + row) / pixels), pixel = int((first + row) % pixels);
  const int y = pixel / w.out * h.stride - h.pad, x = pixel % w.out * w.stride - w.pad;
  const auto* from = static_cast<const uint4*>(args.x) + int64_t(image) * h.in * w.in * eights + i % eights;
  uint32_t words[Taps][4];
#pragma unroll
  for (int tap = 0; tap < Taps; ++tap) {
    const int in_row = index_of(h, y + tap / w.kernel * h.dilation);
    const int column = index_of(w, x + tap % w.kernel * w.dilation);
    uint4 v = make_uint4(0, 0, 0, 0);
    if (in_row >= 0 && column >= 0) v = from[(int64_t(in_row) * w.in + column) * eights];
    words[tap][0] = v.x, words[tap][1] = v.y, words[tap][2] = v.z, words[tap][3] = v.w;
  }
  const auto term = [&](int n) {  // channel n / Taps, tap n % Taps
    const uint32_t word = words[n % Taps][n / Taps / 2];
    return n / Taps % 2 == 0 ? word & 0xffffu : word >> 16;
  };
  to += row * eights * Taps + i % eights * Taps;
#pragma unroll
  for (int tap = 0; tap < Taps; ++tap) {
    uint32_t packed[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) packed[n] = term(tap * 8 + 2 * n) | term(tap * 8 + 2 * n + 1) << 16;
    to[tap] = make_uint4(packed[0], packed[1], packed[2], packed[3]);
  }
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

ProductLayout product_layout(int64_t channels, int64_t taps, bool x_last) {
  if (x_last) return {channels, channels * taps};
  const int64_t padded = (channels + kDepth - 1) / kDepth * kDepth;
  // A third more terms cost less than the places of single terms.
  if (taps == 1 || 3 * padded <= 4 * channels) return {padded, padded * taps};
  return {0, (channels * taps + kDepth - 1) / kDepth * kDepth};
}

bool wants_channels_last(int64_t channels, int64_t taps) { return product_layout(channels, taps, false).tap == 0; }

void launch_channels_last(const void* x, void* to, int64_t images, int64_t channels, int64_t pixels,
                          cudaStream_t stream) {
  const int64_t count = images * pixels * ((channels + 7) / 8);
  launch(channels_last_kernel, blocks_for(count), dim3(kDenseThreads), 0, stream, static_cast<const uint16_t*>(x),
         static_cast<uint4*>(to), count, int(channels), pixels);
}

bool needs_layout(int64_t channels, int64_t taps) { return taps != 1 || channels % 8 != 0; }

void launch_product_layout(const void* weights, void* to, int64_t rows, int64_t channels, int64_t taps,
                           const ProductLayout& layout, cudaStream_t stream) {
  break_overlap();
  launch(layout_kernel, blocks_for(rows * layout.row), dim3(kDenseThreads), 0, stream,
         static_cast<const uint16_t*>(weights), static_cast<uint16_t*>(to), rows, channels, taps, layout);
}

void launch_unfold(const ConvArgs& args, void* x, int64_t first, int64_t rows, int64_t inputs, cudaStream_t stream) {
  const int taps = args.window.h.kernel * args.window.w.kernel;
  if (args.x_last && args.channels % 8 == 0 && int64_t(args.channels) * taps == inputs) {
    const dim3 grid = blocks_for(rows * (args.channels / 8));
    auto* to = static_cast<uint4*>(x);
    if (taps == 1) return launch(unfold_last_kernel<1>, grid, dim3(kDenseThreads), 0, stream, args, to, first, rows);
    if (taps == 9) return launch(unfold_last_kernel<9>, grid, dim3(kDenseThreads), 0, stream, args, to, first, rows);
  }
  launch(unfold_kernel, dim3(unsigned((rows + 31) / 32), unsigned(inputs / 64)), dim3(256), 0, stream, args,
         static_cast<uint16_t*>(x), first, rows, int(inputs));
}

void launch_fold_end(const ConvArgs& args, const void* sums, int64_t first, int64_t rows, cudaStream_t stream) {
  launch(fold_end_kernel, dim3(unsigned((rows + 31) / 32), unsigned((args.outputs + 31) / 32)), dim3(256), 0, stream,
         args, static_cast<const __half*>(sums), first, rows);
}

}  // namespace tcim_lite::cuda
