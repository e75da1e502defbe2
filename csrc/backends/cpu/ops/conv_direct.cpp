// Conv with lanes across outputs: taps are read where they lie, in the input itself, in padded fp32 planes or, of 1x1
// kernels, in packed pixels. Weights are turned once for many pixels.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backends/cpu/dispatch.h"
#include "backends/cpu/ops/conv.h"
#include "backends/cpu/ops/padded.h"
#include "backends/cpu/ops/windows.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kLeastInputs = 48, kLeastOutputs = 33;  // fewer: turning the sums, or padding x, takes too long
constexpr int64_t kLeastPixels = 32, kLeastRow = 4;       // fewer: turning the weights does, or tiles are too small
constexpr int64_t kMostFloats = 1 << 24;                  // of padded planes
constexpr int64_t kNarrowRow = 7, kMostRow = 4096;        // narrow: tiles of few pixels need more outputs
constexpr int64_t kFewPixels = 112, kManyPixels = 400;    // of a task: their sums stay in the second cache
constexpr int64_t kPixelUnit = 112;                       // tiles have up to 14 pixels, vectors 16
constexpr int64_t kGrainElements = 1 << 14;               // to pad at a time
constexpr int64_t kPackedPixels = 16 * kPackedTile;       // to pack at a time: a line of each tile fits the first cache

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
int64_t parts_of(int64_t value, int64_t unit) { return (value + unit - 1) / unit; }

bool reads_inside(const Window::Axis& axis) {
  return axis.pad == 0 && (axis.out - 1) * axis.stride + (axis.kernel - 1) * axis.dilation < axis.in;
}

}  // namespace

// Where pixels and terms lie.
struct ConvStep::Places {
  Places(const ConvStep& step, const KernelTable& kernels) : padded(step.window, 0) {
    const Window& window = step.window;
    const bool inside = reads_inside(window.h) && reads_inside(window.w);
    packs = kernels.packs_pixels && window.taps() == 1 && inside;
    in_place = !packs && step.elem == kF32 && window.w.stride == 1 && inside;
    const bool flat = packs || window.h.out == 1 || is_identity(window);
    rows = flat ? 1 : window.h.out;
    row_pixels = flat ? window.out_pixels() : window.w.out;
    row_stride = in_place ? window.h.stride * window.w.in : padded.row_step * padded.pitch;
    slab = row_pixels <= kNarrowRow ? kernels.narrow_slab : kSlab / 2;
    const int64_t k = step.inputs(), most = std::min(kSlabTerms, kernels.slab_floats / slab);
    terms = round_up(parts_of(k, parts_of(k, most)), 16);
    if (packs)
      plane = round_up(row_pixels, kPackedTile);
    else
      plane = in_place ? window.in_pixels() : padded.floats(window.h.out);
    group = packs ? round_up(k, terms) * plane : step.channels * plane;
  }

  // Of the first channel and tap.
  int64_t of_pixel(int64_t pixel) const {
    if (packs) return pixel / kPackedTile * kPackedTile * terms + pixel % kPackedTile;
    return pixel / row_pixels * row_stride + pixel % row_pixels;
  }
  // Behind that of the first channel.
  int64_t of_channel(int64_t channel) const {
    return packs ? channel / terms * terms * plane + channel % terms * kPackedTile : channel * plane;
  }

  PaddedRows padded;
  bool packs;     // the terms of a tile of pixels lie side by side: [k / terms, tiles, terms, kPackedTile]
  bool in_place;  // else, unless it packs, padded planes
  int64_t rows, row_pixels, row_stride, plane;
  int64_t slab, terms;  // outputs, and their terms at a time: they fit the first cache
  int64_t group;        // floats
};

// Tasks: slabs of outputs times parts of the pixels, whole rows or a part of the only one.
struct ConvStep::DirectTasks {
  DirectTasks(const ConvStep& step, const Places& places, int64_t members) {
    const int64_t pixels = step.window.out_pixels(), wanted = kTasksOfMember * members;
    slabs = parts_of(step.outputs, places.slab);
    const int64_t split = std::min(parts_of(wanted, step.groups * slabs), parts_of(pixels, kFewPixels));
    parts = std::max(split, parts_of(pixels, kManyPixels));
    if (places.rows == 1) {
      part_pixels = parts == 1 ? pixels : round_up(parts_of(pixels, parts), places.packs ? kPackedTile : kPixelUnit);
    } else {
      part_pixels = parts_of(places.rows, parts) * places.row_pixels;
    }
    parts = parts_of(pixels, part_pixels);
  }

  int64_t slabs, parts, part_pixels;
};

bool ConvStep::is_direct() const {
  if (quantized() || inputs() < kLeastInputs || outputs < kLeastOutputs || window.out_pixels() < kLeastPixels)
    return false;
  if (window.w.out > kMostRow && window.h.out > 1) return false;
  if (!PaddedRows::is_reasonable(window, kMostFloats)) return false;
  const Places places(*this, kernels());
  return places.row_pixels >= kLeastRow && (places.in_place || places.plane <= kMostFloats / (groups * channels));
}

std::vector<int64_t> ConvStep::direct_offsets() const {
  std::vector<int64_t> offsets;
  if (!is_direct()) return offsets;
  const Places places(*this, kernels());
  const Window::Axis &h = window.h, &w = window.w;
  for (int64_t channel = 0; channel < channels; ++channel) {
    for (int64_t i = 0; i < h.kernel; ++i) {
      for (int64_t j = 0; j < w.kernel; ++j) {
        const int64_t tap = places.in_place ? i * h.dilation * w.in + j * w.dilation : places.padded.offset(i, j);
        offsets.push_back(places.of_channel(channel) + tap);
      }
    }
  }
  return offsets;
}

int64_t ConvStep::direct_shared_bytes() const {
  const Places places(*this, kernels());
  return places.in_place ? 0 : groups * places.group * 4;
}

int64_t ConvStep::direct_member_bytes() const {
  const Places places(*this, kernels());
  const int64_t pixels = DirectTasks(*this, places, ThreadPool::instance().size()).part_pixels;
  const int64_t packing = places.packs ? 2 * places.terms * kPackedPixels : 0;
  return std::max({(kSlabTerms + pixels) * kSlab * 4 + pixels * 8, window.w.in * 4, packing * 4});
}

// `count` planes of a block at pixels [pixel, pixel + kPackedPixels), or as many as there are. What the first of them
// reads comes to `to`, the rest as of_pixel() and of_channel() say.
template <typename T>
void ConvStep::pack(const RunContext& context, const T* planes, int64_t count, int64_t pixel, std::byte* scratch,
                    const Places& places, float* to) const {
  const int64_t pixels = std::min(kPackedPixels, window.out_pixels() - pixel), whole = pixels / kPackedTile;
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

// An image as `places` has it, unless it is read where it lies.
const float* ConvStep::prepare_direct(const RunContext& context, const Places& places, const std::byte* image) const {
  if (places.in_place) return reinterpret_cast<const float*>(image);
  auto* prepared = reinterpret_cast<float*>(context.shared_scratch);
  const int64_t plane_bytes = window.in_pixels() * elem_bytes(elem);
  if (!places.packs) {
    const auto pad = [&](int64_t plane, int member) {
      places.padded.fill(context, elem, image + plane * plane_bytes, 0, window.h.out, 0.0f,
                         reinterpret_cast<float*>(context.member(member)), prepared + plane * places.plane);
    };
    context.pool.parallel_for(groups * channels, pad, parts_of(kGrainElements, places.plane));
    return prepared;
  }
  const int64_t blocks = parts_of(channels, places.terms), parts = parts_of(window.out_pixels(), kPackedPixels);
  const auto pack_part = [&](int64_t index, int member) {
    const int64_t pixel = index % parts * kPackedPixels, block = index / parts % blocks, group = index / parts / blocks;
    const int64_t channel = block * places.terms, count = std::min(places.terms, channels - channel);
    const std::byte* planes = image + (group * channels + channel) * plane_bytes;
    float* to = prepared + group * places.group + places.of_channel(channel) + places.of_pixel(pixel);
    if (elem == kF16)
      pack(context, reinterpret_cast<const uint16_t*>(planes), count, pixel, context.member(member), places, to);
    else
      pack(context, reinterpret_cast<const float*>(planes), count, pixel, context.member(member), places, to);
  };
  context.pool.parallel_for(groups * blocks * parts, pack_part);
  return prepared;
}

void ConvStep::run_direct(const RunContext& context) const {
  const Places places(*this, context.kernels);
  const DirectTasks tasks(*this, places, context.pool.size());
  const int64_t image_bytes = groups * channels * window.in_pixels() * elem_bytes(elem);
  for (int64_t image = 0; image < batch; ++image) {
    const float* source = prepare_direct(context, places, context.at(x) + image * image_bytes);
    const int64_t of_part = groups * tasks.slabs;
    const auto multiply = [&](int64_t index, int member) {
      const int64_t group = index % of_part / tasks.slabs, row = index % tasks.slabs * places.slab;
      const int64_t pixel = index / of_part * tasks.part_pixels;
      multiply_direct(context, places, source + group * places.group,
                      {image, group, pixel, std::min(tasks.part_pixels, window.out_pixels() - pixel)}, row, member);
    };
    context.pool.parallel_for(of_part * tasks.parts, multiply);
  }
}

void ConvStep::multiply_direct(const RunContext& context, const Places& places, const float* source, const Panel& part,
                               int64_t row, int member) const {
  auto* packed = reinterpret_cast<float*>(context.member(member));
  float* acc = packed + kSlabTerms * kSlab;
  auto* read_at = reinterpret_cast<int64_t*>(acc + part.count * kSlab);
  for (int64_t i = 0; i < part.count; ++i) read_at[i] = places.of_pixel(part.pixel + i);
  const int64_t size = elem_bytes(elem), k = inputs(), pixels = window.out_pixels();
  const int64_t rows = std::min(places.slab, outputs - row), channel = part.group * outputs + row;
  const int64_t some = places.terms;
  const std::byte* factors = weights + channel * k * size;
  for (int64_t first = 0; first < k; first += some) {
    const int64_t terms = std::min(some, k - first);
    context.kernels.slab[elem]({factors + first * size, rows, terms, k, packed});
    // The next terms, or the first of the slab that this member is likely to take next.
    const bool ends = first + some >= k;
    const int64_t ahead = ends ? context.pool.size() * places.slab * k - first : some;
    const bool fetches = !ends || row + context.pool.size() * places.slab + rows <= outputs;
    const int64_t lines = fetches ? parts_of(some * size, 64) : 0;
    const FetchArgs fetch{factors + (first + ahead) * size, rows, k * size, lines};
    context.kernels.direct({source, read_at, direct_offsets_.data() + first, packed, acc, terms, parts_of(rows, 16),
                            part.count, first == 0, fetch});
  }
  const int64_t at = ((part.image * groups * outputs + channel) * pixels + part.pixel) * size;
  std::byte* out = context.at(y) + at;
  const bool ends = can_end(function);
  context.kernels.turned_store[elem]({acc, bias == nullptr ? nullptr : bias + channel,
                                      residual.given() ? added.at(context) + at : nullptr, out, rows, part.count,
                                      pixels, ends ? ConvEnd{function, alpha, beta} : ConvEnd{}});
  for (int64_t i = 0; !ends && i < rows; ++i) {
    std::byte* of_row = out + i * pixels * size;
    context.kernels.unary[function][elem]({of_row, of_row, part.count, alpha, beta});
  }
}

}  // namespace tcim_lite::cpu
