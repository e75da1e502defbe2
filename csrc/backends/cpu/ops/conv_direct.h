// Conv with lanes across outputs: where its pixels and terms lie. For conv_direct.cpp and conv_pack.cpp.
#pragma once

#include <algorithm>

#include "backends/cpu/ops/conv.h"
#include "backends/cpu/ops/padded.h"
#include "backends/cpu/ops/units.h"

namespace tcim_lite::cpu {

constexpr int64_t kPackedPixels = 16 * kPackedTile;  // to pack at a time: a line of each tile fits the first cache

// Convolutions that have their channels as lanes, blocks or not.
constexpr int64_t kFewChannels = 16;            // fewer leave lanes empty
constexpr int64_t kLeastRow = 4;                // pixels; fewer: tiles are too small
constexpr int64_t kMostPaddedFloats = 1 << 24;  // of padded planes

// A step of two convolutions: floats between them of a task, which stay in the second cache, how many times the rows
// that neighbouring tasks both compute these must hold, and how many tasks keep a member busy.
constexpr int64_t kJoinedFloats = 96 << 10, kLeastPartsOfOverlap = 6, kLeastTasksOfMember = 2;

// The rows of such a task, of slabs of `slab` channels.
struct JoinedRows {
  JoinedRows(const Window& window, int64_t slab)
      : reach((window.h.kernel - 1) * window.h.dilation + 1),
        again(reach - window.h.stride),
        between(kJoinedFloats / (slab * window.w.in)),
        most_parts(parts_of(window.h.out, std::max<int64_t>(4, 4 * again))) {}

  int64_t reach;       // rows between that one of y reads
  int64_t again;       // that neighbouring tasks both compute
  int64_t between;     // that fit
  int64_t most_parts;  // into which the rows are cut to have enough tasks
};

// Where pixels and terms lie.
struct ConvStep::Places {
  Places(const ConvStep& step, const KernelTable& kernels);

  // Of the first channel and tap.
  int64_t of_pixel(int64_t pixel) const {
    if (packs) return pixel / kPackedTile * kPackedTile * terms + pixel % kPackedTile;
    return (pixel / row_pixels * row_stride + pixel % row_pixels) * unit;
  }
  // The same of `count` pixels from `pixel` on, without a division for each.
  void of_pixels(int64_t pixel, int64_t count, int64_t* found) const {
    const int64_t row = packs ? kPackedTile : row_pixels;
    const int64_t behind = packs ? kPackedTile * (terms - 1) : (row_stride - row_pixels) * unit;
    int64_t column = pixel % row, at = of_pixel(pixel);
    for (int64_t i = 0; i < count; ++i, ++column, at += unit) {
      if (column == row) at += behind, column = 0;
      found[i] = at;
    }
  }
  // Behind that of the first channel.
  int64_t of_channel(int64_t channel) const {
    if (packs) return channel / terms * terms * plane + channel % terms * kPackedTile;
    return channel / unit * unit * plane + channel % unit;
  }

  PaddedRows padded;
  int64_t unit;     // channels whose pixels lie side by side, and floats from one pixel to the next
  bool any_pixels;  // tiles take kPackedTile pixels from any rows
  bool packs;       // the terms of a tile of pixels lie side by side: [k / terms, tiles, terms, kPackedTile]
  bool inside;      // taps in the padding are left out, so that there is none; what lies in planes is turned to blocks
  bool in_place;    // else, unless it packs, padded planes
  int64_t rows, row_pixels, row_stride, plane;  // plane: pixels
  int64_t slab, terms;                          // outputs, and their terms at a time: they fit the first cache
  int64_t group;                                // floats
  int64_t part_pixels = 0;  // of a part that is packed alone; 0: all pixels are packed, or padded, first
};

// Weights of outputs from `channel` on as they are stored: `rows` outputs share `stride` bytes.
struct ConvStep::SlabWeights {
  SlabWeights(const ConvStep& step, int64_t channel);

  // Of an output, a multiple of `rows`, counted from `channel`, and a term, an even one of fp16.
  const std::byte* at(int64_t output, int64_t k) const { return first + output / rows * stride + k * term; }
  // Those of `terms` from k on of `count` outputs where the kernels can read them: stored, or turned into `scratch`.
  // Vectors of 16 outputs are `packed_stride` apart.
  const float* packed(const KernelTable& kernels, int64_t count, int64_t k, int64_t terms, float* scratch) const;

  const ConvStep& step;
  int64_t rows, stride, term, packed_stride;
  const std::byte* first;
};

// A member's scratch. What packing needs meanwhile lies where the weights do.
struct ConvStep::DirectScratch {
  DirectScratch(std::byte* base, const Places& places, int64_t pixels)
      : weights(reinterpret_cast<float*>(base)),
        acc(weights + weight_floats(places)),
        read_at(reinterpret_cast<int64_t*>(acc + pixels * places.slab)),
        part(reinterpret_cast<float*>(read_at + round_up(pixels, 8))) {}
  static int64_t bytes(const Places& places, int64_t pixels) {
    const int64_t packed = places.part_pixels > 0 ? places.group : 0;
    return (weight_floats(places) + pixels * places.slab + packed) * 4 + round_up(pixels, 8) * 8;
  }

  float* weights;    // as SlabArgs
  float* acc;        // as DirectArgs
  int64_t* read_at;  // [pixels]
  float* part;       // packed

 private:
  static int64_t weight_floats(const Places& places) {
    return std::max(kSlabTerms * places.slab, places.packs ? 2 * places.terms * kPackedPixels : 0);
  }
};

}  // namespace tcim_lite::cpu
