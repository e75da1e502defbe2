// What a Conv with lanes across outputs reads: planes with their padding, or packed pixels.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backends/cpu/ops/conv_direct.h"
#include "backends/cpu/ops/windows.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kGrainElements = 1 << 14;  // to pad at a time

}  // namespace

// `count` planes of a block at pixels [pixel, pixel + pixels). What the first of them reads comes to `to`, the rest as
// of_pixel() and of_channel() say.
template <typename T>
void ConvStep::pack(const RunContext& context, const T* planes, int64_t count, int64_t pixel, int64_t pixels,
                    std::byte* scratch, const Places& places, float* to) const {
  const int64_t whole = pixels / kPackedTile;
  const T* rows = planes + pixel;
  int64_t stride = window.in_pixels();
  if (!is_identity(window)) {
    T* gathered = reinterpret_cast<T*>(scratch);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t done = 0; done < pixels;) {
        const int64_t row = (pixel + done) / window.w.out, column = (pixel + done) % window.w.out;
        const int64_t some = std::min(pixels - done, window.w.out - column);
        copy_every(window.w.stride,
                   planes + i * stride + row * window.h.stride * window.w.in + column * window.w.stride, some,
                   gathered + i * kPackedPixels + done);
        done += some;
      }
    }
    rows = gathered;
    stride = kPackedPixels;
  }
  const float* floats = reinterpret_cast<const float*>(rows);
  if constexpr (!std::is_same_v<T, float>) {
    float* wide = reinterpret_cast<float*>(scratch) + count * kPackedPixels;
    context.kernels.widen[kF16]({rows, wide, count, pixels, stride, kPackedPixels, 1.0f});
    floats = wide;
    stride = kPackedPixels;
  }
  for (int64_t i = 0; i < count; ++i, floats += stride, to += kPackedTile) {
    float* of_tile = to;
    for (int64_t tile = 0; tile < whole; ++tile, of_tile += places.terms * kPackedTile)
      std::memcpy(of_tile, floats + tile * kPackedTile, kPackedTile * sizeof(float));
    std::copy_n(floats + whole * kPackedTile, pixels % kPackedTile, of_tile);
  }
}

// Channels [channel, channel + places.terms) of a group, or as many as there are, at pixels [pixel, end), of which
// `first` is the first of `packed`.
void ConvStep::pack_block(const RunContext& context, const Places& places, const std::byte* planes, int64_t channel,
                          int64_t first, int64_t pixel, int64_t end, int member, float* packed) const {
  const int64_t count = std::min(places.terms, channels - channel);
  planes += channel * window.in_pixels() * elem_bytes(elem);
  for (; pixel < end; pixel += kPackedPixels) {
    const int64_t pixels = std::min(kPackedPixels, end - pixel);
    float* to = packed + places.of_channel(channel) + places.of_pixel(pixel - first);
    if (elem == kF16)
      pack(context, reinterpret_cast<const uint16_t*>(planes), count, pixel, pixels, context.member(member), places,
           to);
    else
      pack(context, reinterpret_cast<const float*>(planes), count, pixel, pixels, context.member(member), places, to);
  }
}

// An image as `places` has it, unless it is read where it lies.
const float* ConvStep::prepare_direct(const RunContext& context, const Places& places, const std::byte* image) const {
  if (places.in_place) return reinterpret_cast<const float*>(image);
  auto* prepared = reinterpret_cast<float*>(context.shared_scratch + blocks_bytes());
  if (x_in_blocks) {
    pad_blocks(context, places, reinterpret_cast<const float*>(image), prepared);
    return prepared;
  }
  const int64_t plane_bytes = window.in_pixels() * elem_bytes(elem);
  if (places.inside) {
    context.pool.parallel_for(parts_of(channels, kBlock), [&](int64_t block, int) {
      const int64_t channel = block * kBlock, pixels = window.in_pixels();
      context.kernels.slab[elem]({image + channel * plane_bytes, std::min(kBlock, channels - channel), pixels, pixels,
                                  prepared + channel * pixels});
    });
    return prepared;
  }
  if (!places.packs) {
    // Few planes are cut into parts.
    const int64_t planes = groups * channels, wanted = kTasksOfMember * context.pool.size();
    const int64_t all = places.padded.in_rows(window.h.out), pitch = places.padded.pitch;
    const int64_t rows = parts_of(all, planes >= wanted ? 1 : std::min(parts_of(wanted, planes), all));
    const int64_t parts = parts_of(all, rows);
    const auto pad = [&](int64_t index, int member) {
      const int64_t plane = index / parts, first = index % parts * rows, some = std::min(rows, all - first);
      const int64_t floats = first + some == all ? places.plane - first * pitch : some * pitch;
      places.padded.fill_rows(context, elem, image + plane * plane_bytes, first, some, floats, 0.0f,
                              reinterpret_cast<float*>(context.member(member)),
                              prepared + plane * places.plane + first * pitch);
    };
    context.pool.parallel_for(planes * parts, pad, parts_of(kGrainElements, places.plane / parts));
    return prepared;
  }
  const int64_t pixels = window.out_pixels();
  const int64_t blocks = parts_of(channels, places.terms), parts = parts_of(pixels, kPackedPixels);
  const auto pack_part = [&](int64_t index, int member) {
    const int64_t pixel = index % parts * kPackedPixels, block = index / parts % blocks, group = index / parts / blocks;
    pack_block(context, places, image + group * channels * plane_bytes, block * places.terms, 0, pixel,
               std::min(pixel + kPackedPixels, pixels), member, prepared + group * places.group);
  };
  context.pool.parallel_for(groups * blocks * parts, pack_part);
  return prepared;
}

}  // namespace tcim_lite::cpu
