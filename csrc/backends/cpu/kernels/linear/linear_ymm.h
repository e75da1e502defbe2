// The packed formats on ymm registers. Everything has internal linkage.
#pragma once

#include "backends/cpu/kernels/linear/linear_x86.h"

namespace tcim_lite::cpu {
namespace {

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
  // The same of run `run`. InPlace: those of odd runs may be 16 times as large, which saves a shift.
  template <bool InPlace>
  static void unpack(const uint8_t* weights, int run, int half, __m256i (&codes)[1]) {
    codes[0] = InPlace && run % 2 != 0 ? _mm256_and_si256(pairs(weights, run, half), _mm256_set1_epi8(char(0xf0)))
                                       : stored(weights, run, half);
    settle(codes[0]);
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

// How far ahead R rows fetch by WeightFetch::IntoFirst (benchmarks/notes/log/cpu-avx2-neon.md).
template <typename Format, int R>
constexpr Distance kIntoFirst{R > 2 && !Format::kNibbles ? 8 * Format::kUnitBytes : 0, 6 * Format::kUnitBytes};

// Rows as a kernel takes them, in spans of Span::kTaken groups of 64 inputs.
template <typename Span>
void arrange(const ArrangeArgs& args) {
  std::byte* to = args.arranged;
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t begin = 0; begin < args.groups; begin += Span::kTaken, to += Span::kBytes) {
      const int64_t at = row * args.groups + begin, left = args.groups - begin;
      Span::take(args.codes + at * kGroup, args.scales + at, left < Span::kTaken ? left : Span::kTaken, to);
    }
  }
}

}  // namespace
}  // namespace tcim_lite::cpu
