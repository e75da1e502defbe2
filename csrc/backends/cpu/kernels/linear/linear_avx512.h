// The packed formats on zmm registers, for AVX-512 and AMX kernels. Everything has internal linkage.
#pragma once

#include "backends/cpu/kernels/linear/linear_x86.h"

namespace tcim_lite::cpu {
namespace {

// What zmm registers take from a packed format: the scales of a group, and the stored codes, those of E2M1 decoded, of
// inputs 0..3 and 4..7 of eight.
template <WeightFormat F>
struct ZmmFormat : Packed<F> {
  using Packed<F>::kE2m1, Packed<F>::kHalfScales, Packed<F>::kNibbles;

  static __m512 scales(const uint8_t* at) {
    if constexpr (kHalfScales) {
      return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
    } else {  // 2^e for e in [-126, 127]
      const __m512i exponent = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(exponent, _mm512_set1_epi32(127)), 23));
    }
  }

  static void unpack(const uint8_t* from, __m512i& first, __m512i& second) {
    if constexpr (kNibbles) {
      const __m512i pairs = _mm512_load_si512(from), low_mask = _mm512_set1_epi8(0x0f);
      first = _mm512_and_si512(pairs, low_mask);
      second = _mm512_and_si512(_mm512_srli_epi16(pairs, 4), low_mask);
      if constexpr (kE2m1) {
        const __m128i codes = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
        first = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(codes), first);
        second = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(codes), second);
      }
    } else {
      first = _mm512_load_si512(from);
      second = _mm512_load_si512(from + 64);
      __asm__("" : "+v"(first), "+v"(second));  // or gcc 12 loads them again for every second row
    }
  }

  // The same; the second may be 16 times as large, which saves a shift. merge() adds their sums.
  static void unpack_in_place(const uint8_t* from, __m512i& first, __m512i& second) {
    if constexpr (kInPlace) {
      const __m512i pairs = _mm512_load_si512(from);
      first = _mm512_and_si512(pairs, _mm512_set1_epi8(0x0f));
      second = _mm512_and_si512(pairs, _mm512_set1_epi8(char(0xf0)));
    } else {
      unpack(from, first, second);
    }
  }
  static __m512i merge(__m512i first, __m512i second) {
    return _mm512_add_epi32(first, kInPlace ? _mm512_srai_epi32(second, 4) : second);
  }

 private:
  static constexpr bool kInPlace = kNibbles && !kE2m1;
};

inline __m512i broadcast4(const int8_t* a) { return _mm512_set1_epi32(four_codes(a)); }

// What the offset of the stored codes adds to dots with activations of these sums.
template <typename Format>
inline __m512i excess(__m512i code_sums) {
  constexpr auto kOffset = unsigned(Format::kLayout.code_offset);
  if constexpr (kOffset == 0) return _mm512_setzero_si512();
  constexpr int kShift = kOffset == 0 ? 0 : __builtin_ctz(kOffset);
  static_assert(kOffset == 0 || 1u << kShift == kOffset);
  return _mm512_slli_epi32(code_sums, kShift);
}

// The integer sum of a row begins at -offset * sum(a).
template <typename Format>
inline __m512i start(int32_t code_sum) {
  return _mm512_sub_epi32(_mm512_setzero_si512(), excess<Format>(_mm512_set1_epi32(code_sum)));
}

}  // namespace
}  // namespace tcim_lite::cpu
