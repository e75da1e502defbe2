// Linear with quantised weights on ymm registers, few rows, from the stored codes in spans of groups: what the sums of
// a row begin with is made once for all blocks. Everything has internal linkage.
//
// A method says how a format is multiplied. It defines
//   Format     of the weights
//   kMost      rows of a tile
//   start_of   what a row's sums begin with in a group
//   dots       of R rows with both halves of the outputs of a group, exact
#pragma once

#include "backends/cpu/kernels/linear/linear_ymm.h"

namespace tcim_lite::cpu {
namespace {

// How far ahead R rows fetch their codes (benchmarks/notes/log/cpu-avx2-neon.md). Up to two rows of W4 wait for memory,
// more, and MXFP4, for arithmetic.
template <typename Format, int R>
constexpr Distance nibbles_ahead() {
  if (Format::kFetch == WeightFetch::IntoFirst) return kIntoFirst<Format, R>;
  return R <= 2 && Format::kFormat == WeightFormat::LinearW4 ? kPagesAhead : Distance{2 * 1088, 0};
}

// What a row has for a group: its scale, and what its sums begin with.
struct RowOfGroup {
  int32_t start;
  float scale;
};

// Groups [begin, end) of some rows.
template <typename Method>
struct Span {
  using Format = typename Method::Format;
  static constexpr int64_t kRows = kFewRows, kGroups = 64 * Format::kParts;

  Span(const LinearQuantArgs& args, int64_t first_row, int64_t count, int64_t first_group, int64_t end_group)
      : row(first_row), begin(first_group), end(end_group) {
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

// R rows of a span and block, from the stored codes.
template <typename Method, int R>
__attribute__((noinline)) void tile_of_few(const LinearQuantArgs& args, const Span<Method>& span, int64_t row,
                                           int64_t block) {
  using Format = typename Method::Format;
  constexpr int64_t kStride = Span<Method>::kGroups;
  const Tile t(args, row, block);
  const RowOfGroup* rows = span.rows + (row - span.row) * kStride;
  const int8_t* inputs = t.codes + span.begin * Format::kInputs;
  alignas(32) float sums[R][kBlockOutputs];
  load_sums<R>(t, span.begin == 0, sums);
  for (int64_t index = span.begin; index < span.end; ++index, ++rows, inputs += Format::kInputs) {
    const uint8_t* scales = t.weights + Format::scales_at(span.groups_of(args), index);
    prefetch_scales<Format, nibbles_ahead<Format, R>()>(scales, args.block_stride);
    __m256i dot[R][2];
    Method::template dots<R, nibbles_ahead<Format, R>()>(t.weights + Format::codes_at(index), inputs, t.inputs, rows,
                                                         kStride, dot);
    add_scaled<R>(Format::scales(scales, 0), Format::scales(scales, 1), rows, kStride, dot, sums);
  }
  store_sums<R>(t, sums);
}

// Groups [begin, end) of some rows.
template <typename Method>
void rows_from_stored(const LinearQuantArgs& args, int64_t first_row, int64_t count, int64_t begin, int64_t end) {
  using Part = Span<Method>;
  for_tiles(count, Part::kRows, [&](int64_t first, int64_t rows) {
    for (int64_t group = begin; group < end; group += Part::kGroups) {
      const Part span(args, first_row + first, rows, group, end - group < Part::kGroups ? end : group + Part::kGroups);
      for (int64_t block = 0; block < args.blocks; ++block) {
        for_tiles(rows, Method::kMost, [&](int64_t row, int64_t some) {
          with_count<Method::kMost>(some,
                                    [&](auto of) { tile_of_few<Method, of.value>(args, span, span.row + row, block); });
        });
      }
    }
  });
}

template <typename Method>
void linear_of_few_nibbles(const LinearQuantArgs& args) {
  prefetch_first_scales<typename Method::Format>(args);
  rows_from_stored<Method>(args, 0, args.rows, 0, args.groups * Method::Format::kParts);
}

}  // namespace
}  // namespace tcim_lite::cpu
