// The operations of simd.h that move lanes, on AVX2: transposed blocks, lanes one further, every other lane. Only
// simd_avx2.h includes this.
#pragma once

#define TCIM_LITE_SIMD_TURN

namespace tcim_lite::cpu {
namespace {

// Eight lanes that begin `lanes` behind the first of a, and go on in b.
template <int lanes>
inline __m256 across(__m256 a, __m256 b) {
  const __m256i middle = _mm256_castps_si256(_mm256_permute2f128_ps(a, b, 0x21));
  if constexpr (lanes < 4)
    return _mm256_castsi256_ps(_mm256_alignr_epi8(middle, _mm256_castps_si256(a), 4 * lanes));
  else
    return _mm256_castsi256_ps(_mm256_alignr_epi8(_mm256_castps_si256(b), middle, 4 * (lanes - 4)));
}
inline Vec moved_up(Vec before, Vec a) { return {across<7>(before.high, a.low), across<7>(a.low, a.high)}; }
inline Vec moved_down(Vec a, Vec behind) { return {across<1>(a.low, a.high), across<1>(a.high, behind.low)}; }

// Of 16 lanes, those of even or odd index, as `lanes` of a shuffle says.
template <int lanes>
inline __m256 every_other(Vec a) {
  const __m256d pairs = _mm256_castps_pd(_mm256_shuffle_ps(a.low, a.high, lanes));
  return _mm256_castpd_ps(_mm256_permute4x64_pd(pairs, 0xd8));
}
inline void split(Vec a, Vec b, Vec& even, Vec& odd) {
  even = {every_other<0x88>(a), every_other<0x88>(b)};
  odd = {every_other<0xdd>(a), every_other<0xdd>(b)};
}

// Four elements at p, then four at q.
inline __m256 load_fours(const float* p, const float* q) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(q), 1);
}
inline __m256 load_fours(const uint16_t* p, const uint16_t* q) {
  const __m128 first = _mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm256_cvtph_ps(_mm_castps_si128(_mm_loadh_pi(first, reinterpret_cast<const __m64*>(q))));
}

// As in simd.h. Rows are pointers to floats or fp16; those that are four apart share a register from the load on, so
// that nothing has to cross its halves.
template <typename Row>
inline void turn(Row row, float* to, int64_t stride) {
#pragma GCC unroll 2
  for (int i = 0; i < 16; i += 8) {
#pragma GCC unroll 4
    for (int j = 0; j < 16; j += 4) {
      __m256 rows[4];
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) rows[n] = load_fours(row(i + n) + j, row(i + n + 4) + j);
      const __m256 a = _mm256_unpacklo_ps(rows[0], rows[1]), b = _mm256_unpackhi_ps(rows[0], rows[1]);
      const __m256 c = _mm256_unpacklo_ps(rows[2], rows[3]), d = _mm256_unpackhi_ps(rows[2], rows[3]);
      float* out = to + stride * j + i;
      _mm256_storeu_ps(out, _mm256_shuffle_ps(a, c, 0x44));
      _mm256_storeu_ps(out + stride, _mm256_shuffle_ps(a, c, 0xee));
      _mm256_storeu_ps(out + 2 * stride, _mm256_shuffle_ps(b, d, 0x44));
      _mm256_storeu_ps(out + 3 * stride, _mm256_shuffle_ps(b, d, 0xee));
    }
  }
}
// All 16 Vecs do not fit the registers.
template <typename Row>
inline void load_turned(Row row, Full, Vec (&turned)[16]) {
  turn(row, reinterpret_cast<float*>(turned), 16);
}

[[maybe_unused]] __attribute__((noinline)) void transpose(Vec (&rows)[16]) {
  alignas(32) float stored[16][16];
  for (int i = 0; i < 16; ++i) store(stored[i], rows[i]);
  load_turned([&](int64_t i) { return stored[i]; }, Full{}, rows);
}

}  // namespace
}  // namespace tcim_lite::cpu
