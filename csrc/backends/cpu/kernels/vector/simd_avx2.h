// The vector operations of simd.h on AVX2, FMA and F16C: a Vec is two registers. Only simd.h includes this.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tcim_lite::cpu {
namespace {

constexpr int kSums = 4;  // Vecs that fit the registers as sums: eight of 16, as many as two units of four cycles need

struct Vec {
  __m256 low, high;
};
struct Ints {
  __m256i low, high;
};

struct Full {};
struct Tail {
  explicit Tail(int64_t tail) : count(tail) {}
  int64_t count;  // 1 to 15

  __m256i mask_from(int first) const {
    const __m256i lanes = _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(int(count)), lanes);
  }
};

inline Vec broadcast(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
inline Ints broadcast(int32_t value) { return {_mm256_set1_epi32(value), _mm256_set1_epi32(value)}; }

inline Vec load(const float* p, Full = {}) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline Vec load(const float* p, Tail tail) {
  return {_mm256_maskload_ps(p, tail.mask_from(0)), _mm256_maskload_ps(p + 8, tail.mask_from(8))};
}
inline Vec load(const uint16_t* p, Full = {}) {
  const auto* halves = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
// AVX2 moves pairs of 16-bit elements under a mask; of an odd number the last one comes alone.
inline Vec load(const uint16_t* p, Tail tail) {
  const Tail pairs(tail.count / 2);
  __m256i halves = _mm256_maskload_epi32(reinterpret_cast<const int*>(p), pairs.mask_from(0));
  if (tail.count % 2 != 0) {
    const __m256i lanes = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m256i is_last = _mm256_cmpeq_epi16(lanes, _mm256_set1_epi16(int16_t(tail.count - 1)));
    halves = _mm256_blendv_epi8(halves, _mm256_set1_epi16(int16_t(p[tail.count - 1])), is_last);
  }
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}

__attribute__((always_inline)) inline void prefetch_near(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}
__attribute__((always_inline)) inline void prefetch_far(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

inline Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Vec operator-(Vec a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.low, sign), _mm256_xor_ps(a.high, sign)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Vec abs(Vec a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
inline Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
// min and max return their second operand when one is NaN.
inline Vec clamp(Vec a, Vec low, Vec high) { return max(low, min(high, a)); }
inline Vec zero_where_below(Vec a, Vec x, Vec limit) {
  return {_mm256_andnot_ps(_mm256_cmp_ps(x.low, limit.low, _CMP_LT_OQ), a.low),
          _mm256_andnot_ps(_mm256_cmp_ps(x.high, limit.high, _CMP_LT_OQ), a.high)};
}
inline Vec where_less(Vec x, Vec limit, Vec a, Vec b) {
  return {_mm256_blendv_ps(b.low, a.low, _mm256_cmp_ps(x.low, limit.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(b.high, a.high, _mm256_cmp_ps(x.high, limit.high, _CMP_LT_OQ))};
}
inline Vec whole(Vec a) {
  constexpr int kRounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.low, kRounding), _mm256_round_ps(a.high, kRounding)};
}
inline Vec sqrt(Vec a) { return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)}; }
inline Vec first_lanes(Vec a, Vec, Full) { return a; }
inline Vec first_lanes(Vec a, Vec others, Tail tail) {
  return {_mm256_blendv_ps(others.low, a.low, _mm256_castsi256_ps(tail.mask_from(0))),
          _mm256_blendv_ps(others.high, a.high, _mm256_castsi256_ps(tail.mask_from(8)))};
}

inline Ints load(const int32_t* p) {
  const auto* halves = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
inline void store(int32_t* p, Ints a) {
  auto* halves = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(halves, a.low);
  _mm256_storeu_si256(halves + 1, a.high);
}
inline Ints operator-(Ints a, Ints b) { return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)}; }
inline Ints min(Ints a, Ints b) { return {_mm256_min_epi32(a.low, b.low), _mm256_min_epi32(a.high, b.high)}; }
inline Ints operator+(Ints a, Ints b) { return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)}; }
inline Ints max(Ints a, Ints b) { return {_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)}; }
template <int count>
inline Ints shift_left(Ints a) {
  return {_mm256_slli_epi32(a.low, count), _mm256_slli_epi32(a.high, count)};
}
inline Ints bits(Vec a) { return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)}; }
inline Vec from_bits(Ints a) { return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)}; }
inline Vec to_floats(Ints a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
inline Ints powers(Ints a) {
  const __m256i mask = _mm256_set1_epi32(0x7f800000);
  return {_mm256_and_si256(a.low, mask), _mm256_and_si256(a.high, mask)};
}
inline __m256i low_bytes(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i even = _mm256_blend_epi16(a, _mm256_slli_epi32(c, 16), 0xaa);
  const __m256i odd = _mm256_blend_epi16(b, _mm256_slli_epi32(d, 16), 0xaa);
  return _mm256_blendv_epi8(even, _mm256_slli_epi16(odd, 8), _mm256_set1_epi16(int16_t(0xff00)));
}
inline Ints low_bytes(Ints a, Ints b, Ints c, Ints d) {
  return {low_bytes(a.low, b.low, c.low, d.low), low_bytes(a.high, b.high, c.high, d.high)};
}
inline Ints nearest(Vec a) { return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)}; }

struct Halves {
  __m128i low, high;
};
inline Halves to_any_half(Vec a) {
  constexpr int kRounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_cvtps_ph(a.low, kRounding), _mm256_cvtps_ph(a.high, kRounding)};
}
inline Halves to_half(Vec a) { return to_any_half(clamp(a, broadcast(-65504.0f), broadcast(65504.0f))); }
inline Vec widened(Halves halves) { return {_mm256_cvtph_ps(halves.low), _mm256_cvtph_ps(halves.high)}; }
inline Vec round_to_half(Vec a) { return widened(to_half(a)); }
inline Vec round_to_any_half(Vec a) { return widened(to_any_half(a)); }

inline void store(float* p, Vec a, Full = {}) {
  _mm256_storeu_ps(p, a.low);
  _mm256_storeu_ps(p + 8, a.high);
}
// By halves of what is left: on Zen a masked store takes a dozen cycles.
inline void store(float* p, Vec a, Tail tail) {
  __m256 eight = a.low;
  if (tail.count & 8) {
    _mm256_storeu_ps(p, eight);
    eight = a.high;
    p += 8;
  }
  __m128 four = _mm256_castps256_ps128(eight);
  if (tail.count & 4) {
    _mm_storeu_ps(p, four);
    four = _mm256_extractf128_ps(eight, 1);
    p += 4;
  }
  if (tail.count & 2) {
    _mm_storel_pi(reinterpret_cast<__m64*>(p), four);
    four = _mm_movehl_ps(four, four);
    p += 2;
  }
  if (tail.count & 1) _mm_store_ss(p, four);
}
inline void store(uint16_t* p, Vec a, Full = {}) {
  const Halves halves = to_half(a);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), halves.low);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), halves.high);
}
inline void store(uint16_t* p, Vec a, Tail tail) {
  const Halves halves = to_half(a);
  __m128i eight = halves.low;
  if (tail.count & 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), eight);
    eight = halves.high;
    p += 8;
  }
  if (tail.count & 4) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), eight);
    eight = _mm_unpackhi_epi64(eight, eight);
    p += 4;
  }
  if (tail.count & 2) {
    _mm_storeu_si32(p, eight);
    eight = _mm_srli_si128(eight, 4);
    p += 2;
  }
  if (tail.count & 1) *p = uint16_t(_mm_extract_epi16(eight, 0));
}
inline void store_bytes(int8_t* p, Ints a) {
  // The packs work inside 128-bit lanes; the words of a.low and a.high come out as low0 high0 low1 high1.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

inline float first_lane(Vec a) { return _mm256_cvtss_f32(a.low); }
inline float tree_sum(Vec a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline bool any_nan(Vec a) { return _mm256_movemask_ps(_mm256_cmp_ps(a.low, a.high, _CMP_UNORD_Q)) != 0; }
inline float largest(Vec a) {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

template <typename Op>
inline void tree(const Vec (&values)[kSums], float* out, Op op) {
  __m256 eight[4], four[2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) eight[i] = op(values[i].low, values[i].high);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m256 a = eight[2 * i], b = eight[2 * i + 1];
    four[i] = op(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
  const __m256 two = op(_mm256_shuffle_ps(four[0], four[1], 0x44), _mm256_shuffle_ps(four[0], four[1], 0xee));
  const __m256 one = op(_mm256_shuffle_ps(two, two, 0x88), _mm256_shuffle_ps(two, two, 0xdd));
  _mm_storeu_ps(out, _mm_unpacklo_ps(_mm256_castps256_ps128(one), _mm256_extractf128_ps(one, 1)));
}
inline void tree_sums(const Vec (&sums)[kSums], float* out) {
  tree(sums, out, [](__m256 a, __m256 b) { return _mm256_add_ps(a, b); });
}
inline void all_largest(const Vec (&values)[kSums], float* out) {
  tree(values, out, [](__m256 a, __m256 b) { return _mm256_max_ps(a, b); });
}

}  // namespace
}  // namespace tcim_lite::cpu

#include "backends/cpu/kernels/vector/simd_avx2_moves.h"  // behind what it uses
