// Depthwise Conv over planes of few columns, whose rows leave lanes empty: the planes of 16 channels are turned into a
// block, where lanes are channels, and so are the sums.
#include <algorithm>
#include <cstring>

#include "backends/cpu/ops/blocks.h"
#include "backends/cpu/ops/conv.h"
#include "backends/cpu/ops/units.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kFewColumns = 15;
constexpr int64_t kMostFloats = 1 << 15;  // of a block: it stays in the second cache

// What all results read of an axis, its padding included.
int64_t reach(const Window::Axis& axis) { return (axis.out - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1; }

BlockWindow::Axis padded(const Window::Axis& axis) { return {reach(axis), axis.kernel, axis.stride, 0, axis.dilation}; }

// A member's scratch.
struct Turned {
  Turned(std::byte* base, const Window& window)
      : block(reinterpret_cast<float*>(base)),
        padded(block + window.in_pixels() * kBlock),
        sums(padded + padded_pixels(window) * kBlock),
        weights(sums + window.out_pixels() * kBlock) {}

  static int64_t bytes(const Window& window) {
    const int64_t pixels = window.in_pixels() + padded_pixels(window) + window.out_pixels();
    return (pixels + window.taps()) * kBlock * 4;
  }

  // Planes that were widened lie there before.
  static int64_t padded_pixels(const Window& window) {
    return std::max(reach(window.h) * reach(window.w), window.in_pixels());
  }

  float *block, *padded, *sums, *weights;
};

}  // namespace

bool ConvStep::is_depthwise_turned() const {
  const auto fits = [](const Window::Axis& axis) {
    return axis.pad >= 0 && axis.upsample == 1 && axis.out <= kMostFloats && axis.stride <= kMostFloats &&
           axis.dilation <= kMostFloats && axis.kernel <= kSlabTerms;
  };
  return is_depthwise() && !is_depthwise_in_place() && groups >= kBlock && window.w.out <= kFewColumns &&
         window.taps() <= kSlabTerms && fits(window.h) && fits(window.w) &&
         reach(window.h) <= kMostFloats / kBlock / reach(window.w) && window.in_pixels() <= kMostFloats / kBlock;
}

int64_t ConvStep::turned_bytes() const { return Turned::bytes(window); }

void ConvStep::run_depthwise_turned(const RunContext& context) const {
  const int64_t size = elem_bytes(elem), taps = window.taps(), pixels = window.out_pixels();
  const Window::Axis &h = window.h, &w = window.w;
  const int64_t blocks = parts_of(groups, kBlock), pitch = reach(w), kept_rows = std::min(h.in, reach(h) - h.pad),
                kept_columns = std::min(w.in, pitch - w.pad);
  const auto run = [&](int64_t index, int member) {
    const Turned scratch(context.member(member), window);
    const int64_t channel = index % blocks * kBlock, width = std::min(kBlock, groups - channel);
    const int64_t plane = index / blocks * groups + channel;
    const int64_t in_pixels = window.in_pixels();
    const void* planes = context.at(x) + plane * in_pixels * size;
    if (elem != kF32) {
      const int64_t count = width * in_pixels;
      context.kernels.widen[elem]({planes, scratch.padded, 1, count, count, count, 1.0f});
      planes = scratch.padded;
    }
    context.kernels.transpose[1]({planes, scratch.block, width, in_pixels, in_pixels, kBlock});
    std::memset(scratch.padded, 0, size_t(reach(h) * pitch * kBlock) * sizeof(float));
    if (kept_rows > 0 && kept_columns > 0)
      context.kernels.widen[kF32]({scratch.block, scratch.padded + (h.pad * pitch + w.pad) * kBlock, kept_rows,
                                   kept_columns * kBlock, w.in * kBlock, pitch * kBlock, 1.0f});
    context.kernels.slab[elem]({weights + channel * taps * size, width, taps, taps, scratch.weights});
    context.kernels.depthwise_block({{padded(h), padded(w), 0, h.out, w.out},
                                     scratch.padded,
                                     scratch.weights,
                                     nullptr,
                                     nullptr,
                                     scratch.sums,
                                     width,
                                     kF32});
    const int64_t at = plane * pixels * size;
    std::byte* out = context.at(y) + at;
    store_turned(context.kernels, elem,
                 {scratch.sums, bias == nullptr ? nullptr : bias + channel,
                  residual.given() ? added.at(context) + at : nullptr, out, width, pixels, pixels, stored_end()});
    end_planes(context, out, width, pixels);
  };
  const int64_t grain = std::max<int64_t>(1, kGrainTerms / (kBlock * pixels * taps));
  context.pool.parallel_for(batch * blocks, run, grain);
}

}  // namespace tcim_lite::cpu
