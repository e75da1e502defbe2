// Linear with quantised weights on ymm registers in spans of groups: what the sums of a row begin with is made once for
// all blocks, codes that many rows multiply are unpacked once for all rows. Everything has internal linkage.
//
// A method says how a format is multiplied. It defines
//   Format     of the weights
//   Unpacked   codes as they are multiplied, kCodeBytes of a group; unpack(weights, to)
//   kMost      rows of a tile
//   start_of   what a row's sums begin with in a group
//   dots       of R rows with both halves of the outputs of a group, exact; from the codes of Source, one of these two
#pragma once

#include "backends/cpu/kernels/linear_ymm.h"

namespace tcim_lite::cpu {
namespace {

// How far ahead R rows fetch their codes (benchmarks/notes/log/cpu-avx2-neon.md). Up to two rows of W4 wait for memory,
// more, and MXFP4, for arithmetic.
template <typename Format, int R>
constexpr int64_t kNibblesAhead = R <= 2 && Format::kFormat == WeightFormat::LinearW4 ? kPagesAhead : 2 * 1088;

// What a row has for a group: its scale, and what its sums begin with.
struct RowOfGroup {
  int32_t start;
  float scale;
};

// Groups [begin, end) of some rows.
template <typename Method, bool Stream>
struct Span {
  using Format = typename Method::Format;
  static constexpr int64_t kRows = Stream ? kFewRows : 64;
  static constexpr int64_t kGroups = (Stream ? 64 : 16) * Format::kParts;

  Span(const LinearQuantArgs& args, int64_t first_row, int64_t count, int64_t first_group)
      : row(first_row), begin(first_group), end(groups_of(args) - begin < kGroups ? groups_of(args) : begin + kGroups) {
    for (int64_t r = 0; r < count; ++r) {
      const int8_t* codes = args.codes + (row + r) * args.groups * kGroup;
      const float* scales = args.scales + (row + r) * args.groups;
      for (int64_t index = begin; index < end; ++index)
        rows[r * kGroups + index - begin] = {Method::start_of(codes + index * Format::kInputs),
                                             scales[index / Format::kParts]};
    }
  }

  static int64_t groups_of(const LinearQuantArgs& args) { return args.groups * Format::kParts; }

  int64_t row, begin, end;
  RowOfGroup rows[kRows * kGroups];
};

// sums = fma(dot, the scales of weights and row, sums) of a group.
template <int R>
__attribute__((always_inline)) inline void add_scaled(__m256 low_scales, __m256 high_scales, const RowOfGroup* rows,
                                                      int64_t stride, const __m256i (&dot)[R][2],
                                                      float (&sums)[R][kBlockOutputs]) {
  const __m256 weight_scales[2] = {low_scales, high_scales};
  unrolled<R>([&](int r) {
    const __m256 row_scale = _mm256_set1_ps(rows[r * stride].scale);
    unrolled<2>([&](int half) {
      const __m256 scale = _mm256_mul_ps(weight_scales[half], row_scale);
      float* sum = sums[r] + 8 * half;
      _mm256_store_ps(sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[r][half]), scale, _mm256_load_ps(sum)));
    });
  });
}

// The scales behind unpacked codes, in fp32.
inline __m256 unpacked_scales(const uint8_t* at, int half) {
  return _mm256_load_ps(reinterpret_cast<const float*>(at) + 8 * half);
}

// Loads or stores the sums of R rows of a block.
template <int R>
__attribute__((always_inline)) inline void load_sums(const Tile& t, bool first, float (&sums)[R][kBlockOutputs]) {
  unrolled<2 * R>([&](int i) {
    const float* from = t.acc + i / 2 * t.acc_stride + i % 2 * 8;
    _mm256_store_ps(sums[i / 2] + i % 2 * 8, first ? _mm256_setzero_ps() : _mm256_load_ps(from));
  });
}
template <int R>
__attribute__((always_inline)) inline void store_sums(const Tile& t, const float (&sums)[R][kBlockOutputs]) {
  unrolled<2 * R>([&](int i) {
    _mm256_store_ps(t.acc + i / 2 * t.acc_stride + i % 2 * 8, _mm256_load_ps(sums[i / 2] + i % 2 * 8));
  });
}

// R rows of a span and block, whose weights are at `unpacked`.
template <typename Method, int R>
void tile_of_many(const LinearQuantArgs& args, const Span<Method, false>& span, int64_t row, int64_t block,
                  const uint8_t* unpacked) {
  constexpr int64_t kStride = Span<Method, false>::kGroups, kInputs = Method::Format::kInputs;
  const Tile t(args, row, block);
  const RowOfGroup* rows = span.rows + (row - span.row) * kStride;
  const int8_t* inputs = t.codes + span.begin * kInputs;
  alignas(32) float sums[R][kBlockOutputs];
  load_sums<R>(t, span.begin == 0, sums);
  for (int64_t index = span.begin; index < span.end; ++index, ++rows, inputs += kInputs) {
    const uint8_t* scales = unpacked + Method::Unpacked::kCodeBytes;
    __m256i dot[R][2];
    Method::template dots<typename Method::Unpacked, R, 0>(unpacked, inputs, t.inputs, rows, kStride, dot);
    add_scaled<R>(unpacked_scales(scales, 0), unpacked_scales(scales, 1), rows, kStride, dot, sums);
    unpacked = scales + kBlockOutputs * sizeof(float);
  }
  store_sums<R>(t, sums);
}

// R rows of a span and block, from the stored codes.
template <typename Method, int R>
void tile_of_few(const LinearQuantArgs& args, const Span<Method, true>& span, int64_t row, int64_t block) {
  using Format = typename Method::Format;
  constexpr int64_t kStride = Span<Method, true>::kGroups;
  const Tile t(args, row, block);
  const RowOfGroup* rows = span.rows + (row - span.row) * kStride;
  const int8_t* inputs = t.codes + span.begin * Format::kInputs;
  alignas(32) float sums[R][kBlockOutputs];
  load_sums<R>(t, span.begin == 0, sums);
  for (int64_t index = span.begin; index < span.end; ++index, ++rows, inputs += Format::kInputs) {
    const uint8_t* scales = t.weights + Format::scales_at(span.groups_of(args), index);
    prefetch_scales<Format, kNibblesAhead<Format, R>>(scales, args.block_stride);
    __m256i dot[R][2];
    Method::template dots<Format, R, kNibblesAhead<Format, R>>(t.weights + Format::codes_at(index), inputs, t.inputs,
                                                               rows, kStride, dot);
    add_scaled<R>(Format::scales(scales, 0), Format::scales(scales, 1), rows, kStride, dot, sums);
  }
  store_sums<R>(t, sums);
}

// Rows are split evenly: where they are many, no tile has fewer than half of the most.
template <typename Method, int R>
constexpr auto many_of() -> decltype(&tile_of_many<Method, Method::kMost>) {
  if constexpr (R <= Method::kMost && R >= Method::kMost / 2) return tile_of_many<Method, R>;
  return nullptr;
}
template <typename Method, int R>
constexpr auto few_of() -> decltype(&tile_of_few<Method, 1>) {
  if constexpr (R <= Method::kMost) return tile_of_few<Method, R>;
  return nullptr;
}

// use(span, tile) for each span of the rows, one after the other, as a span holds for all blocks; tile(use) calls
// use(row, rows, index, count) for its tiles.
template <typename Method, bool Stream, typename Use>
__attribute__((always_inline)) inline void for_spans(const LinearQuantArgs& args, const Use& use) {
  using Part = Span<Method, Stream>;
  const int64_t parts = (args.rows + Part::kRows - 1) / Part::kRows;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t first = args.rows * part / parts, rows = args.rows * (part + 1) / parts - first;
    const int64_t tiles = (rows + Method::kMost - 1) / Method::kMost;
    const auto for_tiles = [&](const auto& body) {
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t row = rows * tile / tiles, stop = rows * (tile + 1) / tiles;
        body(first + row, stop - row, tile, tiles);
      }
    };
    for (int64_t begin = 0; begin < Part::groups_of(args); begin += Part::kGroups)
      use(Part(args, first, rows, begin), for_tiles);
  }
}

// A block's codes are unpacked once for all rows.
template <typename Method>
void linear_of_many_nibbles(const LinearQuantArgs& args) {
  using Format = typename Method::Format;
  using Unpacked = typename Method::Unpacked;
  using Part = Span<Method, false>;
  constexpr decltype(&tile_of_many<Method, Method::kMost>) kernels[] = {nullptr,
                                                                        many_of<Method, 1>(),
                                                                        many_of<Method, 2>(),
                                                                        many_of<Method, 3>(),
                                                                        many_of<Method, 4>(),
                                                                        many_of<Method, 5>()};
  static_assert(Method::kMost < sizeof(kernels) / sizeof(kernels[0]));
  constexpr int64_t kBytes = Unpacked::kCodeBytes + kBlockOutputs * sizeof(float);
  alignas(64) uint8_t unpacked[Part::kGroups * kBytes];
  for_spans<Method, false>(args, [&](const Part& span, const auto& for_tiles) {
    const int64_t span_bytes = Format::codes_at(Part::kGroups);
    for (int64_t block = 0; block < args.blocks; ++block) {
      const uint8_t* weights = args.weights + block * args.block_stride;
      uint8_t* to = unpacked;
      for (int64_t index = span.begin; index < span.end; ++index, to += kBytes) {
        Unpacked::unpack(weights + Format::codes_at(index), to);
        auto* scales = reinterpret_cast<float*>(to + Unpacked::kCodeBytes);
        for (int half = 0; half < 2; ++half)
          _mm256_store_ps(scales + 8 * half,
                          Format::scales(weights + Format::scales_at(span.groups_of(args), index), half));
      }
      const uint8_t* next = weights + Format::codes_at(span.begin) + args.block_stride;
      for_tiles([&](int64_t row, int64_t rows, int64_t tile, int64_t tiles) {
        prefetch_part(next, span_bytes, tile, tiles);
        kernels[rows](args, span, row, block, unpacked);
      });
    }
  });
}

template <typename Method>
void linear_of_few_nibbles(const LinearQuantArgs& args) {
  constexpr decltype(&tile_of_few<Method, 1>) kernels[] = {
      nullptr, few_of<Method, 1>(), few_of<Method, 2>(), few_of<Method, 3>(), few_of<Method, 4>(), few_of<Method, 5>()};
  static_assert(Method::kMost < sizeof(kernels) / sizeof(kernels[0]));
  prefetch_first_scales<typename Method::Format>(args);
  for_spans<Method, true>(args, [&](const Span<Method, true>& span, const auto& for_tiles) {
    for (int64_t block = 0; block < args.blocks; ++block)
      for_tiles([&](int64_t row, int64_t rows, int64_t, int64_t) { kernels[rows](args, span, row, block); });
  });
}

}  // namespace
}  // namespace tcim_lite::cpu
