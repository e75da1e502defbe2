// Linear with 8-bit codes on ymm registers without dot product instructions. vpmaddubsw takes the stored codes as they
// are, as its unsigned operand, and activations in two parts of 4 bits, so that sums of 16 bits hold a whole group.
// Everything has internal linkage.
#pragma once

#include "backends/cpu/kernels/linear/linear_span.h"

namespace tcim_lite::cpu {
namespace {

// 16 groups of a row as they are multiplied: a = 16 * high + low, both in [-8, 8]. A run has four high parts, then four
// low ones.
template <typename Format>
struct SplitSpan {
  static_assert(Format::kLayout.code_offset == 128 && Format::kParts == 1);
  static constexpr int64_t kGroups = 16, kTaken = kGroups, kRun = 8, kGroupBytes = kGroup / 4 * kRun;

  // Sums of a part in a lane of 16 bits, products of 32 inputs, begin with -127.5 times those inputs, rounded: then
  // they end within 127.5 * 32 * 8, whatever the codes. `rest` is what their sum over lanes and parts still lacks of
  // the dot.
  struct Start {
    int32_t high, low;  // of two lanes each
    int32_t rest;
    float scale;
  };
  static constexpr int64_t kStarts = kGroups * kGroupBytes, kBytes = kStarts + kGroups * int64_t(sizeof(Start));
  static_assert(kBytes % kLineBytes == 0);

  static const Start* starts(const std::byte* span) { return reinterpret_cast<const Start*>(span + kStarts); }

  static void take(const int8_t* codes, const float* scales, int64_t groups, std::byte* span) {
    for (int64_t i = 0; i < groups; ++i)
      reinterpret_cast<Start*>(span + kStarts)[i] = split(codes + i * kGroup, scales[i], span + i * kGroupBytes);
  }

  static Start split(const int8_t* codes, float scale, std::byte* to) {
    __m256i high_sums = _mm256_setzero_si256(), low_sums = high_sums;
    for (int i = 0; i < kGroup; i += 32) {
      const __m256i a = load(reinterpret_cast<const uint8_t*>(codes + i));
      const __m256i halved = _mm256_avg_epu8(_mm256_xor_si256(a, _mm256_set1_epi8(-128)), _mm256_set1_epi8(7));
      const __m256i raised = _mm256_and_si256(_mm256_srli_epi16(halved, 3), _mm256_set1_epi8(0x1f));  // high + 8
      const __m256i high = _mm256_sub_epi8(raised, _mm256_set1_epi8(8));
      const __m256i low = _mm256_sub_epi8(a, _mm256_and_si256(_mm256_slli_epi16(high, 4), _mm256_set1_epi8(-16)));
      const __m256i ones = _mm256_set1_epi8(1);
      high_sums = _mm256_add_epi16(high_sums, _mm256_maddubs_epi16(ones, high));
      low_sums = _mm256_add_epi16(low_sums, _mm256_maddubs_epi16(ones, low));
      const __m256i even = _mm256_unpacklo_epi32(high, low), odd = _mm256_unpackhi_epi32(high, low);
      auto* runs = reinterpret_cast<__m256i*>(to + i / 4 * kRun);
      _mm256_store_si256(runs, _mm256_permute2x128_si256(even, odd, 0x20));
      _mm256_store_si256(runs + 1, _mm256_permute2x128_si256(even, odd, 0x31));
    }
    const __m256i pairs =
        _mm256_add_epi16(_mm256_unpacklo_epi32(high_sums, low_sums), _mm256_unpackhi_epi32(high_sums, low_sums));
    __m128i sums = _mm_add_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    sums = _mm_add_epi16(sums, _mm_shuffle_epi32(sums, 0x4e));
    const __m128i half = _mm_srai_epi16(sums, 1);
    const __m128i start =
        _mm_sub_epi16(_mm_setzero_si128(), _mm_add_epi16(_mm_mullo_epi16(sums, _mm_set1_epi16(127)), half));
    const __m128i over = _mm_madd_epi16(_mm_sub_epi16(sums, half), _mm_setr_epi16(16, 16, 1, 1, 0, 0, 0, 0));
    return {_mm_cvtsi128_si32(start), _mm_extract_epi32(start, 1),
            -_mm_cvtsi128_si32(over) - _mm_extract_epi32(over, 1), scale};
  }
};

// Rows of a span of groups [begin, end): those of row r are at spans + r * stride.
struct SplitRows {
  const std::byte* spans;
  int64_t stride, begin, end;
};

// R rows of a span and block. Fetched are the lines of codes of the next block whose bits are in `lines`; or, if Pages,
// those of line_of_next_pages(), for rows that wait for memory.
template <typename Format, int R, bool Pages>
__attribute__((noinline)) void tile_of_bytes(const LinearQuantArgs& args, const SplitRows& rows, int64_t row,
                                             int64_t block, uint32_t lines) {
  using Span = SplitSpan<Format>;
  constexpr auto kHint = Format::kFetch == WeightFetch::IntoFirst ? _MM_HINT_T0 : _MM_HINT_T1;
  const std::byte* spans = rows.spans + row * rows.stride;
  const Tile t(args, row, block);
  alignas(32) float sums[R][kBlockOutputs];
  load_sums<R>(t, rows.begin == 0, sums);
  for (int64_t index = rows.begin; index < rows.end; ++index) {
    const int64_t at = index - rows.begin;
    const uint8_t* codes = t.weights + Format::codes_at(index);
    const uint8_t* scales = t.weights + Format::scales_at(args.groups, index);
    const std::byte* inputs = spans + at * Span::kGroupBytes;
    const auto start = [&](int r) -> const auto& { return Span::starts(spans + r * rows.stride)[at]; };
    prefetch_scales<Format, Distance{}>(scales, args.block_stride);
    __m256i parts[R][2][2];  // by half of the outputs: high, low
    unrolled<2 * R>([&](int i) {
      parts[i / 2][i % 2][0] = _mm256_set1_epi32(start(i / 2).high);
      parts[i / 2][i % 2][1] = _mm256_set1_epi32(start(i / 2).low);
    });
    unrolled<kGroup / 4>([&](int run) __attribute__((always_inline)) {
      const uint8_t* line = codes + kLineBytes * run;
      if constexpr (Pages)
        prefetch<kPagesAhead>(line);
      else if (lines >> run & 1)
        _mm_prefetch(reinterpret_cast<const char*>(line + args.block_stride), kHint);
      const __m256i stored[2] = {load(codes + 64 * run), load(codes + 64 * run + 32)};
      unrolled<2 * R>([&](int i) __attribute__((always_inline)) {
        const auto* four = reinterpret_cast<const int8_t*>(inputs + i / 2 * rows.stride + run * Span::kRun + i % 2 * 4);
        const __m256i a = _mm256_set1_epi32(four_codes(four));
        unrolled<2>([&](int half)
                        __attribute__((always_inline)) { add_products(parts[i / 2][half][i % 2], stored[half], a); });
      });
    });
    const __m256 weight_scales[2] = {Format::scales(scales, 0), Format::scales(scales, 1)};
    unrolled<2 * R>([&](int i) __attribute__((always_inline)) {
      const auto& [high, low] = parts[i / 2][i % 2];
      __m256i dot = _mm256_add_epi32(_mm256_madd_epi16(high, _mm256_set1_epi16(16)),
                                     _mm256_madd_epi16(low, _mm256_set1_epi16(1)));
      dot = _mm256_add_epi32(dot, _mm256_set1_epi32(start(i / 2).rest));
      const __m256 scale = _mm256_mul_ps(weight_scales[i % 2], _mm256_set1_ps(start(i / 2).scale));
      float* sum = sums[i / 2] + i % 2 * 8;
      _mm256_store_ps(sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, _mm256_load_ps(sum)));
    });
  }
  store_sums<R>(t, sums);
}

// All rows of a span and block. Meanwhile the span of the next block is fetched, each tile its share of lines.
template <typename Format>
void bytes_of_span(const LinearQuantArgs& args, const SplitRows& rows, int64_t block) {
  constexpr int kMost = 3;  // 12 sums, of two halves and two parts each, 2 codes, a broadcast and products
  constexpr bool kPages = Format::kFetch != WeightFetch::IntoFirst;
  if (args.rows == 2) return tile_of_bytes<Format, 2, kPages>(args, rows, 0, block, ~0u);
  const int64_t tiles = (args.rows + kMost - 1) / kMost;
  int64_t tile = 0;
  for_tiles(args.rows, kMost, [&](int64_t row, int64_t some) {
    uint32_t lines = 0;
    for (int64_t line = tile++; line < Format::kLines; line += tiles) lines |= 1u << line;
    with_count<kMost>(some, [&](auto count) {
      tile_of_bytes<Format, count.value, kPages && count.value == 1>(args, rows, row, block, lines);
    });
  });
}

// Calls use(begin, end) for the spans of all groups.
template <typename Format, typename Use>
void for_spans(int64_t groups, const Use& use) {
  constexpr int64_t kGroups = SplitSpan<Format>::kGroups;
  for (int64_t begin = 0; begin < groups; begin += kGroups)
    use(begin, groups - begin < kGroups ? groups : begin + kGroups);
}

template <typename Format>
void linear_of_split(const LinearQuantArgs& args) {
  using Span = SplitSpan<Format>;
  const int64_t stride = (args.groups + Span::kGroups - 1) / Span::kGroups * Span::kBytes;
  prefetch_first_scales<Format>(args);
  for (int64_t block = 0; block < args.blocks; ++block) {
    for_spans<Format>(args.groups, [&](int64_t begin, int64_t end) {
      bytes_of_span<Format>(args, {args.arranged + begin / Span::kGroups * Span::kBytes, stride, begin, end}, block);
    });
  }
}

template <typename Format>
ArrangedKernels arranged_bytes() {
  using Span = SplitSpan<Format>;
  return {arrange<Span>, linear_of_split<Format>, 1, Span::kGroups, Span::kBytes};
}

// Splits the rows first, for callers that have not.
template <typename Format>
void linear_of_bytes(const LinearQuantArgs& args) {
  using Span = SplitSpan<Format>;
  alignas(64) std::byte spans[kFewRows * Span::kBytes];
  prefetch_first_scales<Format>(args);
  for (int64_t first = 0; first < args.rows; first += kFewRows) {
    LinearQuantArgs few = args;
    few.rows = args.rows - first < kFewRows ? args.rows - first : kFewRows;
    few.acc += first * args.acc_stride;
    for_spans<Format>(args.groups, [&](int64_t begin, int64_t end) {
      for (int64_t row = 0; row < few.rows; ++row) {
        const int64_t at = (first + row) * args.groups + begin;
        Span::take(args.codes + at * kGroup, args.scales + at, end - begin, spans + row * Span::kBytes);
      }
      for (int64_t block = 0; block < args.blocks; ++block)
        bytes_of_span<Format>(few, {spans, Span::kBytes, begin, end}, block);
    });
  }
}

}  // namespace
}  // namespace tcim_lite::cpu
