// Activations as many rows of 4-bit codes are multiplied on ymm registers (linear_many_avx2.h): made once for all
// blocks of a Linear. Everything has internal linkage.
#pragma once

#include "backends/cpu/kernels/linear/linear_ymm.h"

namespace tcim_lite::cpu {
namespace {

// Sums of -code * (a + 128) that begin with 128 times the codes end as the sums of -code * a. These fit 16 bits; what
// overflows on the way comes back.
template <typename Format>
constexpr bool fits_words() {
  constexpr int64_t kProducts = Format::kInputs / 2;  // in a sum
  if (Format::kE2m1) return 2 * 12 * 255 <= 32767 && kProducts * 12 * 128 <= 32767;
  return 2 * 8 * 255 <= 32767 && kProducts * 8 * 127 <= 32767 && kProducts * 8 * 128 <= 32768;  // at most -32768
}

// 16 groups of a row as they are multiplied: codes + 128, words, and the unit.
template <typename Format>
struct ArrangedSpan {
  static_assert(fits_words<Format>());
  static constexpr int64_t kTaken = 16, kGroups = kTaken * Format::kParts, kInputs = kTaken * kGroup;
  static constexpr int64_t kWords = kInputs, kUnit = kWords + 16 * 4, kBytes = kUnit + kLineBytes;
  // The scale of a row in a group is a power of two. A row's fp32 sums are counted in another, its unit, and vpmaddwd,
  // which widens the sums of a group, multiplies them by the ratio of the two: the same bits without a multiplication
  // of scales, as nothing underflows where weights have scales in fp16. Those of MXFP4 may underflow.
  static constexpr bool kScalesInWords = Format::kHalfScales && Format::kParts == 1;

  explicit ArrangedSpan(std::byte* base)
      : codes(reinterpret_cast<uint8_t*>(base)),
        words(reinterpret_cast<int32_t*>(codes + kWords)),
        unit(*reinterpret_cast<int32_t*>(codes + kUnit)) {}

  // `groups` of 64 inputs.
  static void take(const int8_t* from, const float* scales, int64_t groups, std::byte* to) {
    ArrangedSpan(to).take(from, scales, int(groups));
  }
  void take(const int8_t* from, const float* scales, int groups) {
    const __m256i sign = _mm256_set1_epi8(-128);
    for (int i = 0; i < groups * kGroup; i += 32) {
      const __m256i signed_codes = load(reinterpret_cast<const uint8_t*>(from + i));
      _mm256_store_si256(reinterpret_cast<__m256i*>(codes + i), _mm256_xor_si256(signed_codes, sign));
    }
    unit = 127 << 23;
    if (kScalesInWords && !take_scales(scales, groups)) unit = kNoUnit;
  }

  // False when the scales are too far apart.
  bool take_scales(const float* scales, int groups) {
    constexpr int kLowest = (127 - 30) << 23, kHighest = (127 + 9) << 23;  // of activations (docs/numerics.md)
    constexpr int kRatio = 14 << 23;                                       // 2^14 times |dot| <= 2^16 fits 32 bits
    __m256i bits[2], low = _mm256_set1_epi32(kHighest), high = _mm256_set1_epi32(kLowest), all = _mm256_setzero_si256();
    for (int i = 0; i < 2; ++i) {
      const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
      const __m256i here = _mm256_cmpgt_epi32(_mm256_set1_epi32(groups - 8 * i), index);
      const __m256i read = _mm256_maskload_epi32(reinterpret_cast<const int*>(scales + 8 * i), here);
      bits[i] = _mm256_blendv_epi8(_mm256_set1_epi32(kLowest), read, here);
      low = _mm256_min_epi32(low, bits[i]);
      high = _mm256_max_epi32(high, bits[i]);
      all = _mm256_or_si256(all, bits[i]);
    }
    alignas(32) int32_t most[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(most), high);
    int32_t top = most[0];
    for (int i = 1; i < 8; ++i) top = top < most[i] ? most[i] : top;
    const __m256i bad = _mm256_or_si256(_mm256_and_si256(all, _mm256_set1_epi32((1 << 23) - 1)),
                                        _mm256_cmpgt_epi32(_mm256_set1_epi32(kLowest), low));
    if (top > kHighest || _mm256_testz_si256(bad, bad) == 0) return false;
    for (int i = 0; i < 2; ++i) {
      const __m256i ratio = _mm256_sub_epi32(bits[i], _mm256_set1_epi32(top - kRatio));
      for (int below = _mm256_movemask_ps(_mm256_castsi256_ps(ratio)); below != 0; below &= below - 1) {
        const int group = 8 * i + __builtin_ctz(unsigned(below));
        if (group < groups && !is_zero(codes + group * kGroup)) return false;
      }
      const __m256i both = _mm256_sllv_epi32(_mm256_set1_epi32(0x10001), _mm256_srai_epi32(ratio, 23));
      _mm256_store_si256(reinterpret_cast<__m256i*>(words + 8 * i), _mm256_sub_epi16(_mm256_setzero_si256(), both));
    }
    unit = top - kRatio;
    return true;
  }

  static bool is_zero(const uint8_t* group) {
    for (int i = 0; i < kGroup; ++i)
      if (group[i] != 128) return false;
    return true;
  }

  static constexpr int32_t kNoUnit = 0;
  uint8_t* codes;  // [kInputs], + 128
  int32_t* words;  // [16], minus the ratio of scale and unit, in both halves
  int32_t& unit;   // as the bits of a float
};

}  // namespace
}  // namespace tcim_lite::cpu
