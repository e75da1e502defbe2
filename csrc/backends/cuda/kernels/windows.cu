// Pools, and convolutions whose groups are small.
#include "backends/cuda/kernels/dense.cuh"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda {
namespace {

// Threads over the output pixels of a plane; several blocks for a plane that has more.
struct Planes {
  int threads;
  int64_t blocks;  // of a plane
};
Planes planes_of(const WindowArgs& window) {
  const int64_t pixels = int64_t(window.h.out) * window.w.out;
  const int threads = int(pixels < 256 ? (pixels + 31) / 32 * 32 : 256);
  return {threads, (pixels + threads - 1) / threads};
}

// Taps of an axis that count for a mean.
__device__ int taps_of(const WindowAxis& axis, int out, int64_t extent) {
  int taps = 0;
  for (int tap = 0; tap < axis.kernel; ++tap) {
    const int position = out * axis.stride + tap * axis.dilation;
    taps += extent > 0 ? position < extent : index_of(axis, position - axis.pad) >= 0;
  }
  return taps;
}

template <typename T>
__global__ void pool_kernel(PoolArgs args, int64_t blocks) {
  wait_for_inputs();
  launch_next();
  if (is_refused(args.refused)) return;
  const int64_t plane = blockIdx.x / blocks;
  const int pixel = int(blockIdx.x % blocks) * blockDim.x + threadIdx.x;
  const WindowAxis &h = args.window.h, &w = args.window.w;
  if (pixel >= h.out * w.out) return;
  const int oy = pixel / w.out, ox = pixel % w.out;
  const T* x = static_cast<const T*>(args.x) + plane * h.in * w.in;
  const float outside = args.mean ? 0.0f : -INFINITY;
  float result = outside;
  bool first = true;
  for (int i = 0; i < h.kernel; ++i) {
    const int y = index_of(h, oy * h.stride + i * h.dilation - h.pad);
    for (int j = 0; j < w.kernel; ++j) {
      const int column = index_of(w, ox * w.stride + j * w.dilation - w.pad);
      const float v = y < 0 || column < 0 ? outside : load(x + int64_t(y) * w.in + column);
      result = first ? v : args.mean ? result + v : larger(result, v);
      first = false;
    }
  }
  if (args.mean) {
    result /= float(taps_of(h, oy, args.counts_pads ? args.extent_h : 0) *
                    taps_of(w, ox, args.counts_pads ? args.extent_w : 0));
  }
  store(static_cast<T*>(args.y) + plane * h.out * w.out + pixel, result);
}

// A thread for 8 channels of an output pixel.
__global__ void pool_last_kernel(PoolArgs args, int channels, int64_t count) {
  int64_t i;
  if (!find_element(count, args.refused, i)) return;
  const WindowAxis &h = args.window.h, &w = args.window.w;
  const int eights = channels / 8, pixels = h.out * w.out;
  const int64_t image = i / eights / pixels;
  const int pixel = int(i / eights % pixels), oy = pixel / w.out, ox = pixel % w.out;
  const auto* x = static_cast<const __half*>(args.x) + image * h.in * w.in * channels + i % eights * 8;
  float result[8];
  bool first = true;
  for (int n = 0; n < 8; ++n) result[n] = 0;
  for (int r = 0; r < h.kernel; ++r) {
    const int y = index_of(h, oy * h.stride + r * h.dilation - h.pad);
    for (int c = 0; c < w.kernel; ++c) {
      const int column = index_of(w, ox * w.stride + c * w.dilation - w.pad);
      float v[8];
      if (y >= 0 && column >= 0) {
        load8(x + (int64_t(y) * w.in + column) * channels, v);
      } else {
#pragma unroll
        for (int n = 0; n < 8; ++n) v[n] = args.mean ? 0.0f : -INFINITY;
      }
#pragma unroll
      for (int n = 0; n < 8; ++n) result[n] = first ? v[n] : args.mean ? result[n] + v[n] : larger(result[n], v[n]);
      first = false;
    }
  }
  if (args.mean) {
    const float taps = float(taps_of(h, oy, args.counts_pads ? args.extent_h : 0) *
                             taps_of(w, ox, args.counts_pads ? args.extent_w : 0));
#pragma unroll
    for (int n = 0; n < 8; ++n) result[n] /= taps;
  }
  store8_any(static_cast<__half*>(args.y) + i * 8, result);
}

template <typename T>
__global__ void conv_kernel(ConvArgs args, int64_t count) {
  int64_t at;  // of y
  if (!find_element(count, args.refused, at)) return;
  const WindowAxis &h = args.window.h, &w = args.window.w;
  const int pixels = h.out * w.out, all = args.groups * args.outputs, all_in = args.groups * args.channels;
  const int channel = int(args.y_last ? at % all : at / pixels % all);
  const int pixel = int(args.y_last ? at / all % pixels : at % pixels);
  const int64_t image = at / all / pixels, in_pixels = int64_t(h.in) * w.in;
  const int64_t channel_step = args.x_last ? 1 : in_pixels, pixel_step = args.x_last ? all_in : 1;
  const int oy = pixel / w.out, ox = pixel % w.out, taps = h.kernel * w.kernel;
  const T* x = static_cast<const T*>(args.x) + image * all_in * in_pixels +
               int64_t(channel / args.outputs) * args.channels * channel_step;
  const T* weights = static_cast<const T*>(args.weights) + int64_t(channel) * args.channels * taps;
  float sum = 0;
  for (int c = 0; c < args.channels; ++c) {
    for (int i = 0; i < h.kernel; ++i) {
      const int y = index_of(h, oy * h.stride + i * h.dilation - h.pad);
      if (y < 0) continue;
      for (int j = 0; j < w.kernel; ++j) {
        const int column = index_of(w, ox * w.stride + j * w.dilation - w.pad);
        if (column < 0) continue;
        sum = fmaf(load(weights + (int64_t(c) * h.kernel + i) * w.kernel + j),
                   load(x + c * channel_step + (int64_t(y) * w.in + column) * pixel_step), sum);
      }
    }
  }
  store(static_cast<T*>(args.y) + at, finish<T>(args.end, channel, at, sum));
}

}  // namespace

void launch_pool(Elem elem, const PoolArgs& args, cudaStream_t stream) {
  const Planes planes = planes_of(args.window);
  with_elem(elem, [&](auto t) {
    launch(pool_kernel<decltype(t)>, dim3(unsigned(args.planes * planes.blocks)), dim3(unsigned(planes.threads)), 0,
           stream, args, planes.blocks);
  });
}

void launch_pool_last(const PoolArgs& args, int channels, cudaStream_t stream) {
  const int64_t count = args.planes / 8 * args.window.h.out * args.window.w.out;
  launch(pool_last_kernel, blocks_for(count), dim3(kDenseThreads), 0, stream, args, channels, count);
}

void launch_conv_direct(Elem elem, const ConvArgs& args, cudaStream_t stream) {
  const int64_t count = int64_t(args.batch) * args.groups * args.outputs * args.window.h.out * args.window.w.out;
  with_elem(elem, [&](auto t) {
    launch(conv_kernel<decltype(t)>, blocks_for(count), dim3(kDenseThreads), 0, stream, args, count);
  });
}

}  // namespace tcim_lite::cuda
