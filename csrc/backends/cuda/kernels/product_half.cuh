// The second operand of product_half.cu where it is unfolded on the way: what a thread fetches of a window's terms.
#pragma once

#include "backends/cuda/kernels/product_end.cuh"

namespace tcim_lite::cuda {

constexpr int kProductDepth = 32;  // terms of a stage

// What a thread gathers: `Each` terms of one column in every stage.
template <int Each>
struct Gatherer {
  const uint16_t* base;
  int y, x;
  bool inside;

  __device__ Gatherer(const ProductArgs& args, const uint16_t* b, int64_t n) : y(0), x(0), inside(n < args.columns) {
    base = b;
    if (!inside) return;
    const int image = int(n / args.pixels), pixel = int(n % args.pixels);
    base += image * args.b_image;
    if (args.windows) {
      y = pixel / args.window.w.out * args.window.h.stride - args.window.h.pad;
      x = pixel % args.window.w.out * args.window.w.stride - args.window.w.pad;
    } else {
      base += pixel * args.b_column;
    }
  }

  // Terms from `channel` on of the tap.
  __device__ void take_tap(const ProductArgs& args, int tap, int channel, uint16_t (&v)[Each]) const {
    const uint16_t* from = base + channel * args.b_row;
    bool valid = inside;
    if (args.windows) {
      const WindowAxis &h = args.window.h, &w = args.window.w;
      const int row = index_of(h, y + tap / w.kernel * h.dilation),
                column = index_of(w, x + tap % w.kernel * w.dilation);
      valid = valid && row >= 0 && column >= 0;
      from += int64_t(row) * w.in + column;
    }
    const int count = valid ? args.channels - channel : 0;
#pragma unroll
    for (int i = 0; i < Each; ++i) {
      v[i] = i < count ? *from : uint16_t(0);
      from += args.b_row;
    }
  }

  // Terms from `k` on in the order channel, row, column of the window.
  __device__ void take_terms(const ProductArgs& args, int k, uint16_t (&v)[Each]) const {
    const WindowAxis &h = args.window.h, &w = args.window.w;
    const int taps = h.kernel * w.kernel;
    int channel = k / taps, i = k % taps / w.kernel, j = k % taps % w.kernel;
#pragma unroll
    for (int n = 0; n < Each; ++n) {
      const int row = index_of(h, y + i * h.dilation), column = index_of(w, x + j * w.dilation);
      const bool valid = inside && channel < args.channels && row >= 0 && column >= 0;
      v[n] = valid ? base[channel * args.b_row + int64_t(row) * w.in + column] : uint16_t(0);
      if (++j < w.kernel) continue;
      j = 0;
      if (++i < h.kernel) continue;
      i = 0;
      ++channel;
    }
  }
};

// Pixels whose channels a thread copies: those of its chunk of every stage.
template <int Count>
struct Pixels {
  const uint16_t* base[Count];
  int y[Count], x[Count];
  bool inside[Count];
  int channel, row, column;  // of the next stage: of the input, and of the window

  __device__ Pixels(const ProductArgs& args, const uint16_t* b, int64_t n, int step, int first) : row(0), column(0) {
#pragma unroll
    for (int i = 0; i < Count; ++i, n += step) {
      inside[i] = n < args.columns;
      const int image = inside[i] ? int(n / args.pixels) : 0, pixel = inside[i] ? int(n % args.pixels) : 0;
      base[i] = b + image * args.b_image;
      y[i] = x[i] = 0;
      if (args.windows) {
        y[i] = pixel / args.window.w.out * args.window.h.stride - args.window.h.pad;
        x[i] = pixel % args.window.w.out * args.window.w.stride - args.window.w.pad;
      } else {
        base[i] += pixel * args.b_column;
      }
    }
    channel = first - kProductDepth;
    advance(args);
  }
  __device__ void advance(const ProductArgs& args) {
    channel += kProductDepth;
    while (args.windows && channel >= args.channels) {
      channel -= args.channels;
      if (++column < args.window.w.kernel) continue;
      column = 0;
      ++row;
    }
  }
  // Null: zeros.
  __device__ const uint16_t* at(const ProductArgs& args, int i) const {
    if (!inside[i]) return nullptr;
    if (!args.windows) return channel < args.channels ? base[i] + channel : nullptr;
    const WindowAxis &h = args.window.h, &w = args.window.w;
    const int from_row = index_of(h, y[i] + row * h.dilation), from_column = index_of(w, x[i] + column * w.dilation);
    if (row >= h.kernel || from_row < 0 || from_column < 0) return nullptr;
    return base[i] + (int64_t(from_row) * w.in + from_column) * args.channels + channel;
  }
};

}  // namespace tcim_lite::cuda
