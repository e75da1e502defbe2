// The packed formats on zmm registers, for AVX-512 and AMX kernels. Everything has internal linkage.
#pragma once

#include "backends/cpu/kernels/linear/linear_x86.h"

namespace tcim_lite::cpu {
namespace {

// What zmm registers take from a packed format.
template <WeightFormat F, WeightFetch Fetch = WeightFetch::Usual>
struct ZmmFormat : Packed<F> {
  using Packed<F>::kE2m1, Packed<F>::kHalfScales, Packed<F>::kNibbles;
  static constexpr WeightFetch kFetch = Fetch;

  // The stored codes of inputs 4 * run .. 4 * run + 7 of a group, run an even number; of E2M1 the codes. InPlace: the
  // second four may be 16 times as large, which saves a shift.
  template <bool InPlace = false>
  static void unpack(const uint8_t* weights, int run, int, __m512i (&codes)[2]) {
    if constexpr (kNibbles) {
      const __m512i low_mask = _mm512_set1_epi8(0x0f);
      __m512i pairs = _mm512_load_si512(weights + 32 * run);
      if constexpr (InPlace) __asm__("" : "+v"(pairs));  // or gcc 12 loads them twice
      codes[0] = _mm512_and_si512(pairs, low_mask);
      codes[1] = InPlace ? _mm512_and_si512(pairs, _mm512_set1_epi8(char(0xf0)))
                         : _mm512_and_si512(_mm512_srli_epi16(pairs, 4), low_mask);
      if constexpr (kE2m1) {
        const __m128i e2m1 = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
        for (__m512i& four : codes) four = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(e2m1), four);
      }
    } else {
      codes[0] = _mm512_load_si512(weights + 64 * run);
      codes[1] = _mm512_load_si512(weights + 64 * run + 64);
      __asm__("" : "+v"(codes[0]), "+v"(codes[1]));  // or gcc 12 loads them again for every second row
    }
  }
  static __m512 scales(const uint8_t* at, int = 0) {
    if constexpr (kHalfScales) {
      return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
    } else {  // 2^e for e in [-126, 127]
      const __m512i exponent = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(exponent, _mm512_set1_epi32(127)), 23));
    }
  }
};

}  // namespace
}  // namespace tcim_lite::cpu
