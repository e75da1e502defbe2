// Linear with quantised weights on ymm registers: the formats, and a tile loop over dots(), which a kernel file
// defines. Everything has internal linkage.
#pragma once

#include "backends/cpu/kernels/linear/linear_x86.h"

namespace tcim_lite::cpu {
namespace {

// Stops gcc 12 from postponing the additions or repeating the unpacking, either of which makes it run out of registers.
inline void settle(__m256i& value) { __asm__("" : "+x"(value)); }

// sum + products and sum - products, in two instructions: gcc 12 would add products up among themselves first and
// spill.
inline void add_products(__m256i& sum, __m256i codes, __m256i a) {
  __m256i products;
  __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(codes), "x"(a));
}
inline __m256i load(const uint8_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }

// What ymm registers take from a packed format.
template <WeightFormat F, WeightFetch Fetch = WeightFetch::Usual>
struct YmmFormat : Packed<F> {
  using Packed<F>::kE2m1, Packed<F>::kHalfScales, Packed<F>::kNibbles;
  static constexpr WeightFetch kFetch = Fetch;

  // The line that has the nibbles of run `run`.
  static __m256i pairs(const uint8_t* weights, int run, int half) { return load(weights + 64 * (run / 2) + 32 * half); }
  // The stored codes of inputs 4 * run .. of half the outputs of a group; of E2M1 the codes.
  static __m256i stored(const uint8_t* weights, int run, int half) {
    if constexpr (kNibbles) {
      const __m256i both = pairs(weights, run, half), low_mask = _mm256_set1_epi8(0x0f);
      const __m256i nibbles = _mm256_and_si256(run % 2 == 0 ? both : _mm256_srli_epi16(both, 4), low_mask);
      if constexpr (!kE2m1) return nibbles;
      const __m128i codes = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
      return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(codes), nibbles);
    } else {
      return load(weights + 64 * run + 32 * half);
    }
  }
  static __m256 scales(const uint8_t* at, int half) {
    if constexpr (kHalfScales) {
      return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(at + 16 * half)));
    } else {  // 2^e
      const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at + 8 * half)));
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(wide, _mm256_set1_epi32(127)), 23));
    }
  }
};

// R rows of one group: where they and their weights lie.
template <int R>
struct Group {
  const uint8_t* weights;
  const int8_t* codes;  // of the first row
  int64_t inputs;       // codes from one row to the next
  const int32_t* sums;  // of the activations
  int64_t stride;       // sums from one row to the next

  // What the offset of the stored codes adds to the dots of row r.
  template <typename Format>
  __m256i excess(int r) const {
    constexpr auto kOffset = uint32_t(Format::kLayout.code_offset);
    static_assert((kOffset & (kOffset - 1)) == 0);
    if constexpr (kOffset == 0) return _mm256_setzero_si256();
    return _mm256_slli_epi32(_mm256_set1_epi32(sums[r * stride]), __builtin_ctz(kOffset));
  }
};

// How far ahead R rows fetch by WeightFetch::IntoFirst (benchmarks/notes/log/cpu-avx2-neon.md).
template <typename Format, int R>
constexpr Distance kIntoFirst{R > 2 && !Format::kNibbles ? 8 * Format::kUnitBytes : 0, 6 * Format::kUnitBytes};

// How far ahead R rows from memory fetch their scales, and their codes: where that is not IntoFirst, two rows of 4-bit
// codes lose by fetches with VPDPBUSD (benchmarks/notes/log/cpu-avx2-neon.md).
template <typename Format, int R>
constexpr Distance kScalesAhead =
    Format::kFetch == WeightFetch::IntoFirst ? kIntoFirst<Format, R>
                                             : Distance{(Format::kScalesBehindBlock ? 8 : 4) * Format::kUnitBytes, 0};
template <typename Format, int R>
constexpr Distance kCodesAhead =
    Format::kFetch != WeightFetch::IntoFirst && R <= 2 && Format::kNibbles ? Distance{} : kScalesAhead<Format, R>;

// Fetches codes ahead of run `run` of a group, where a line begins.
template <typename Format, Distance By>
__attribute__((always_inline)) inline void fetch_codes(const uint8_t* weights, int run) {
  constexpr int kRuns = int(Format::kInputs / 4);
  if (run % (kRuns / Format::kLines) == 0) prefetch<By>(weights + 64 * (run * Format::kLines / kRuns));
}

// Calls use(run) for runs [begin, begin + count); codes are fetched ahead.
template <typename Format, Distance By, typename Use>
__attribute__((always_inline)) inline void for_runs(const uint8_t* weights, int begin, int count, Use use) {
#pragma GCC unroll 16
  for (int run = begin; run < begin + count; ++run) {
    fetch_codes<Format, By>(weights, run);
    use(run);
  }
}

// The dots of R rows with both halves of the outputs of a group, exact.
template <typename Format, int R, bool Stream>
void dots(const Group<R>& group, __m256i (&dot)[R][2]);

// The fp32 sums of R rows, which stay in memory.
template <int R>
void clear_sums(const Tile& t) {
  for (int r = 0; r < R; ++r) {
    for (int half = 0; half < 2; ++half) _mm256_store_ps(t.acc + r * t.acc_stride + 8 * half, _mm256_setzero_ps());
  }
}

template <typename Format, int R>
__attribute__((always_inline)) inline void add_dots(const Tile& t, const uint8_t* scales, int64_t index,
                                                    const __m256i (&dot)[R][2]) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m256 weight_scale = Format::scales(scales, half);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m256 row_scale = _mm256_set1_ps(t.scales[r * t.stride + index / Format::kParts]);
      const __m256 scale = _mm256_mul_ps(weight_scale, row_scale);
      float* sum = t.acc + r * t.acc_stride + 8 * half;
      _mm256_store_ps(sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[r][half]), scale, _mm256_load_ps(sum)));
    }
  }
}

// Group `index` of R rows whose codes, in any form, are at `weights`.
template <typename Format, int R>
Group<R> group_of(const Tile& t, const uint8_t* weights, int64_t index) {
  return {weights, t.codes + index * Format::kInputs, t.inputs, t.sums + index / Format::kParts, t.stride};
}

// R rows of one block.
template <typename Format, int R, bool Stream>
void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
  const Tile t(args, row, block);
  const int64_t groups = args.groups * Format::kParts;
  clear_sums<R>(t);
  for (int64_t index = 0; index < groups; ++index) {
    const uint8_t* scales = t.weights + Format::scales_at(groups, index);
    if constexpr (Stream) prefetch_scales<Format, kScalesAhead<Format, R>>(scales, args.block_stride);
    __m256i dot[R][2];
    dots<Format, R, Stream>(group_of<Format, R>(t, t.weights + Format::codes_at(index), index), dot);
    add_dots<Format, R>(t, scales, index, dot);
  }
}

// Tiles have at most `most` rows, and at least half as many where there are several.
template <typename Format, int most, bool Stream, int rows>
constexpr TileKernel tile_of() {
  if constexpr (rows <= most && rows >= (Stream ? 1 : most / 2))
    return tile<Format, rows, Stream>;
  else
    return nullptr;
}

template <typename Format, int most, bool Stream>
void linear_in_tiles(const LinearQuantArgs& args) {
  constexpr TileKernel kernels[] = {nullptr,
                                    tile_of<Format, most, Stream, 1>(),
                                    tile_of<Format, most, Stream, 2>(),
                                    tile_of<Format, most, Stream, 3>(),
                                    tile_of<Format, most, Stream, 4>(),
                                    tile_of<Format, most, Stream, 5>(),
                                    tile_of<Format, most, Stream, 6>()};
  static_assert(most < sizeof(kernels) / sizeof(kernels[0]));
  run_tiles(args, most, kernels);
}

template <typename Format, int most>
void linear_of_few(const LinearQuantArgs& args) {
  prefetch_first_scales<Format>(args);
  linear_in_tiles<Format, most, true>(args);
}

}  // namespace
}  // namespace tcim_lite::cpu
