// Scales of a panel's groups: of stored exponents, times those of the columns, all powers of two.
#pragma once

#include "backends/cpu/kernels/vector/simd.h"

namespace tcim_lite::cpu {
namespace {

// 2^e of a stored exponent.
inline float scale_of(uint8_t exponent) {
  return __builtin_bit_cast(float, uint32_t(int32_t(int8_t(exponent)) + 127) << 23);
}

struct Multiplied {
  const uint8_t* exponents;

  Vec at(int n) const { return broadcast(scale_of(exponents[n])); }
  static Vec product(Vec weight_scale, Vec scale) { return weight_scale * scale; }
};

#if defined(__AVX512VNNI__)

// Exponents are added: that leaves the multipliers to the products of codes. A column has 2^-30 to 2^9.
constexpr int8_t kLeastAdded = -126 + 30, kMostAdded = 127 - 9;

struct Added {
  const int32_t* exponents;  // in place

  Ints at(int n) const { return broadcast(exponents[n]); }
  static Vec product(Ints exponent, Vec scale) { return from_bits(exponent + bits(scale)); }
};

// body(scales of `Outputs` outputs, as Multiplied)
template <int Outputs, typename Body>
__attribute__((always_inline)) inline void with_scales(const uint8_t* exponents, const Body& body) {
  static_assert(Outputs == 8);
  const __m128i stored = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(exponents));
  const __m128i outside = _mm_or_si128(_mm_cmpgt_epi8(_mm_set1_epi8(kLeastAdded), stored),
                                       _mm_cmpgt_epi8(stored, _mm_set1_epi8(kMostAdded)));
  if (_mm_movemask_epi8(outside) != 0) return body(Multiplied{exponents});
  alignas(32) int32_t in_place[Outputs];
  _mm256_store_si256(reinterpret_cast<__m256i*>(in_place), _mm256_slli_epi32(_mm256_cvtepi8_epi32(stored), 23));
  body(Added{in_place});
}

// Of 16 outputs.
inline Vec scales_of(const uint8_t* exponents) {
  const __m128i stored = _mm_loadu_si128(reinterpret_cast<const __m128i*>(exponents));
  return from_bits(shift_left<23>(Ints{_mm512_cvtepi8_epi32(stored)} + broadcast(127)));
}

#else

template <int Outputs, typename Body>
__attribute__((always_inline)) inline void with_scales(const uint8_t* exponents, const Body& body) {
  body(Multiplied{exponents});
}

#endif

}  // namespace
}  // namespace tcim_lite::cpu
