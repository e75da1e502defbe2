// Sums of products of four codes in each lane of simd.h: stored weights (code + 128), the same in all lanes, times
// signed codes of activations in [-127, 127].
//   Weights(four)    the operand that four stored bytes make
//   add_products     sum + the products; exact, |sum| < 2^31
//   kCountsOffset    the products are those of the stored bytes: 128 * sum of the activations too many
#pragma once

#include "backends/cpu/kernels/vector/simd.h"

namespace tcim_lite::cpu {
namespace {

inline int32_t four_bytes(const uint8_t* at) {
  int32_t bytes;
  __builtin_memcpy(&bytes, at, sizeof(bytes));
  return bytes;
}

#if defined(__AVX512VNNI__)

constexpr bool kCountsOffset = true;
struct Weights {
  explicit Weights(const uint8_t* four) : v(_mm512_set1_epi32(four_bytes(four))) {}
  explicit Weights(__m512i all) : v(all) {}
  // Four bytes for each lane.
  static Weights line(const uint8_t* bytes) { return Weights(_mm512_loadu_si512(bytes)); }
  __m512i v;
};
inline Ints add_products(Ints sum, const Weights& weights, Ints codes) {
  return {_mm512_dpbusd_epi32(sum.v, weights.v, codes.v)};
}

#elif defined(__AVX512BW__)

// The sign of a weight goes to the activation, so that two products, at most 2 * 128 * 127, fit 16 bits.
constexpr bool kCountsOffset = false;
struct Weights {
  explicit Weights(const uint8_t* four) {
    const __m512i codes = _mm512_set1_epi32(four_bytes(four) ^ int32_t(0x80808080));
    sizes = _mm512_abs_epi8(codes);
    negative = _mm512_movepi8_mask(codes);
  }
  __m512i sizes;
  __mmask64 negative;
};
inline Ints add_products(Ints sum, const Weights& weights, Ints codes) {
  const __m512i with_sign = _mm512_mask_sub_epi8(codes.v, weights.negative, _mm512_setzero_si512(), codes.v);
  const __m512i pairs = _mm512_maddubs_epi16(weights.sizes, with_sign);
  return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
}

#elif defined(__AVXVNNI__)

constexpr bool kCountsOffset = true;
struct Weights {
  explicit Weights(const uint8_t* four) : v(_mm256_set1_epi32(four_bytes(four))) {}
  __m256i v;
};
inline Ints add_products(Ints sum, const Weights& weights, Ints codes) {
  return {_mm256_dpbusd_avx_epi32(sum.low, weights.v, codes.low),
          _mm256_dpbusd_avx_epi32(sum.high, weights.v, codes.high)};
}

#elif defined(__ARM_NEON)

constexpr bool kCountsOffset = false;
struct Weights {
  explicit Weights(const uint8_t* four)
      : codes(vreinterpretq_s8_s32(vdupq_n_s32(four_bytes(four) ^ int32_t(0x80808080)))) {}
  int8x16_t codes;
};
inline Ints add_products(Ints sum, const Weights& weights, Ints codes) {
  return each_int([&](int i) {
    const int8x16_t four = vreinterpretq_s8_s32(codes.v[i]);
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(sum.v[i], weights.codes, four);
#else
    // Pairs of products, at most 2 * 128 * 127, fit 16 bits.
    const int16x8_t low = vmull_s8(vget_low_s8(weights.codes), vget_low_s8(four));
    const int16x8_t high = vmull_s8(vget_high_s8(weights.codes), vget_high_s8(four));
    return vaddq_s32(sum.v[i], vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
  });
}

#endif

}  // namespace
}  // namespace tcim_lite::cpu
