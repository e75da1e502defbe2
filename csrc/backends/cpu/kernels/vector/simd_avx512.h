// The vector operations of simd.h on AVX-512: a Vec is one register. Only simd.h includes this.
#pragma once

#include <immintrin.h>

#include <cstdint>

#define TCIM_LITE_SIMD_STORE_FROM

namespace tcim_lite::cpu {
namespace {

constexpr int kSums = 16;  // Vecs that fit the registers as sums

struct Vec {
  __m512 v;
};
struct Ints {
  __m512i v;
};

struct Full {};
struct Tail {
  explicit Tail(int64_t count) : mask(__mmask16((1u << count) - 1)) {}
  __mmask16 mask;
};

inline Vec broadcast(float value) { return {_mm512_set1_ps(value)}; }
inline Ints broadcast(int32_t value) { return {_mm512_set1_epi32(value)}; }

inline Vec load(const float* p, Full = {}) { return {_mm512_loadu_ps(p)}; }
inline Vec load(const float* p, Tail tail) { return {_mm512_maskz_loadu_ps(tail.mask, p)}; }
inline Vec load(const uint16_t* p, Full = {}) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline Vec load(const uint16_t* p, Tail tail) { return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(tail.mask, p))}; }

inline Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec operator-(Vec a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec abs(Vec a) { return {_mm512_abs_ps(a.v)}; }
inline Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
// min and max return their second operand when one is NaN.
inline Vec clamp(Vec a, Vec low, Vec high) { return max(low, min(high, a)); }
inline Vec zero_where_below(Vec a, Vec x, Vec limit) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_NLT_UQ), a.v)};
}
inline Vec where_less(Vec x, Vec limit, Vec a, Vec b) {
  return {_mm512_mask_mov_ps(b.v, _mm512_cmp_ps_mask(x.v, limit.v, _CMP_LT_OQ), a.v)};
}
inline Vec whole(Vec a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Vec sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
inline Vec first_lanes(Vec a, Vec, Full) { return a; }
inline Vec first_lanes(Vec a, Vec others, Tail tail) { return {_mm512_mask_mov_ps(others.v, tail.mask, a.v)}; }

inline Ints load(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
inline void store(int32_t* p, Ints a) { _mm512_storeu_si512(p, a.v); }
inline Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Ints operator-(Ints a, Ints b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline Ints min(Ints a, Ints b) { return {_mm512_min_epi32(a.v, b.v)}; }
inline Ints max(Ints a, Ints b) { return {_mm512_max_epi32(a.v, b.v)}; }
template <int count>
inline Ints shift_left(Ints a) {
  return {_mm512_slli_epi32(a.v, count)};
}
inline Ints bits(Vec a) { return {_mm512_castps_si512(a.v)}; }
inline Vec from_bits(Ints a) { return {_mm512_castsi512_ps(a.v)}; }
inline Vec to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline Ints powers(Ints a) { return {_mm512_and_si512(a.v, _mm512_set1_epi32(0x7f800000))}; }
inline Ints low_bytes(Ints a, Ints b, Ints c, Ints d) {
  const __m512i even = _mm512_mask_blend_epi16(0xaaaaaaaa, a.v, _mm512_slli_epi32(c.v, 16));
  const __m512i odd = _mm512_mask_blend_epi16(0xaaaaaaaa, b.v, _mm512_slli_epi32(d.v, 16));
  return {_mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, even, _mm512_slli_epi16(odd, 8))};
}
inline Ints nearest(Vec a) { return {_mm512_cvtps_epi32(a.v)}; }

inline __m256i to_half(Vec a) {
  const Vec limited = clamp(a, broadcast(-65504.0f), broadcast(65504.0f));
  return _mm512_cvtps_ph(limited.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Vec round_to_half(Vec a) { return {_mm512_cvtph_ps(to_half(a))}; }
inline Vec round_to_any_half(Vec a) {
  return {_mm512_cvtph_ps(_mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}

inline void store(float* p, Vec a, Full = {}) { _mm512_storeu_ps(p, a.v); }
inline void store(float* p, Vec a, Tail tail) { _mm512_mask_storeu_ps(p, tail.mask, a.v); }
inline void store(uint16_t* p, Vec a, Full = {}) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_half(a)); }
inline void store(uint16_t* p, Vec a, Tail tail) { _mm256_mask_storeu_epi16(p, tail.mask, to_half(a)); }
inline __m256i half_from(Vec a, Vec limit) {
  return _mm512_maskz_cvtps_ph(_mm512_cmp_ps_mask(a.v, limit.v, _CMP_NLT_UQ), a.v,
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline void store_from(uint16_t* p, Vec a, Vec limit, Full) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), half_from(a, limit));
}
inline void store_from(uint16_t* p, Vec a, Vec limit, Tail tail) {
  _mm256_mask_storeu_epi16(p, tail.mask, half_from(a, limit));
}
inline void store_bytes(int8_t* p, Ints a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}

inline float first_lane(Vec a) { return _mm512_cvtss_f32(a.v); }
inline float tree_sum(Vec a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline bool any_nan(Vec a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q) != 0; }
inline float largest(Vec a) { return _mm512_reduce_max_ps(a.v); }

// Every step halves the number of vectors, so 16 sums cost 15 additions.
template <typename Op>
inline void tree(const Vec (&values)[kSums], float* out, Op op) {
  __m512 eight[8], four[4], two[2];
  // Position 4 * lane + p of the result comes from input 4 * p + lane of this network.
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const __m512 a = values[i % 2 * 8 + i / 2].v, b = values[i % 2 * 8 + 4 + i / 2].v;
    eight[i] = op(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 a = eight[2 * i], b = eight[2 * i + 1];
    four[i] = op(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
  for (int i = 0; i < 2; ++i) {
    const __m512 a = four[2 * i], b = four[2 * i + 1];
    two[i] = op(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  }
  store(out, {op(_mm512_shuffle_ps(two[0], two[1], 0x88), _mm512_shuffle_ps(two[0], two[1], 0xdd))});
}
inline void tree_sums(const Vec (&sums)[kSums], float* out) {
  tree(sums, out, [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); });
}
inline void all_largest(const Vec (&values)[kSums], float* out) {
  tree(values, out, [](__m512 a, __m512 b) { return _mm512_max_ps(a, b); });
}

inline __attribute__((always_inline)) void transpose(Vec (&rows)[16]) {
  __m512 pairs[16], quads[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(rows[i].v, rows[i + 1].v);
    pairs[i + 1] = _mm512_unpackhi_ps(rows[i].v, rows[i + 1].v);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    quads[i] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    quads[i + 1] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
    quads[i + 2] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    quads[i + 3] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
  }
  // quads[4 g + c] holds, in 128-bit lane l, column 4 l + c of rows 4 g .. 4 g + 3.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 low01 = _mm512_shuffle_f32x4(quads[c], quads[4 + c], 0x44);
    const __m512 high01 = _mm512_shuffle_f32x4(quads[c], quads[4 + c], 0xee);
    const __m512 low23 = _mm512_shuffle_f32x4(quads[8 + c], quads[12 + c], 0x44);
    const __m512 high23 = _mm512_shuffle_f32x4(quads[8 + c], quads[12 + c], 0xee);
    rows[c].v = _mm512_shuffle_f32x4(low01, low23, 0x88);
    rows[4 + c].v = _mm512_shuffle_f32x4(low01, low23, 0xdd);
    rows[8 + c].v = _mm512_shuffle_f32x4(high01, high23, 0x88);
    rows[12 + c].v = _mm512_shuffle_f32x4(high01, high23, 0xdd);
  }
}

__attribute__((always_inline)) inline void prefetch_near(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}
__attribute__((always_inline)) inline void prefetch_far(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

inline Vec moved_up(Vec before, Vec a) {
  return {_mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(a.v), _mm512_castps_si512(before.v), 15))};
}
inline Vec moved_down(Vec a, Vec behind) {
  return {_mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(behind.v), _mm512_castps_si512(a.v), 1))};
}
inline void split(Vec a, Vec b, Vec& even, Vec& odd) {
  const __m512i first = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  even = {_mm512_permutex2var_ps(a.v, first, b.v)};
  odd = {_mm512_permutex2var_ps(a.v, _mm512_add_epi32(first, _mm512_set1_epi32(1)), b.v)};
}

}  // namespace
}  // namespace tcim_lite::cpu
