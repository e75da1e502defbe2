// Pools, and convolutions whose groups are small.
#include "backends/cuda/kernels/dense.cuh"

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

template <typename T>
__global__ void conv_kernel(ConvArgs args, int64_t blocks) {
  wait_for_inputs();
  launch_next();
  if (is_refused(args.refused)) return;
  const int64_t plane = blockIdx.x / blocks;  // of y
  const int pixel = int(blockIdx.x % blocks) * blockDim.x + threadIdx.x;
  const WindowAxis &h = args.window.h, &w = args.window.w;
  if (pixel >= h.out * w.out) return;
  const int oy = pixel / w.out, ox = pixel % w.out, taps = h.kernel * w.kernel;
  const int channel = int(plane % (int64_t(args.groups) * args.outputs));
  const int64_t image = plane / (int64_t(args.groups) * args.outputs), group = channel / args.outputs;
  const int64_t in_pixels = int64_t(h.in) * w.in;
  const T* x = static_cast<const T*>(args.x) + (image * args.groups + group) * args.channels * in_pixels;
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
                   load(x + c * in_pixels + int64_t(y) * w.in + column), sum);
      }
    }
  }
  const int64_t at = plane * h.out * w.out + pixel;
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

void launch_conv_direct(Elem elem, const ConvArgs& args, cudaStream_t stream) {
  const Planes planes = planes_of(args.window);
  const int64_t count = int64_t(args.batch) * args.groups * args.outputs;
  with_elem(elem, [&](auto t) {
    launch(conv_kernel<decltype(t)>, dim3(unsigned(count * planes.blocks)), dim3(unsigned(planes.threads)), 0, stream,
           args, planes.blocks);
  });
}

}  // namespace tcim_lite::cuda
