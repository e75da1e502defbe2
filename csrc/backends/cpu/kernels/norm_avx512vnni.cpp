#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

// Sixteen lanes, or the last few under a mask.
struct Full {};
struct Tail {
  __mmask16 mask;
};

template <typename Body>
inline void for_lanes(int64_t count, Body body) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) body(i, Full{});
  if (i < count) body(i, Tail{__mmask16((1u << (count - i)) - 1)});
}

__m512 load(const float* p, Full) { return _mm512_loadu_ps(p); }
__m512 load(const float* p, Tail tail) { return _mm512_maskz_loadu_ps(tail.mask, p); }
void store(float* p, __m512 v, Full) { _mm512_storeu_ps(p, v); }
void store(float* p, __m512 v, Tail tail) { _mm512_mask_storeu_ps(p, tail.mask, v); }
__m512 load(const uint16_t* p, Full) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
__m512 load(const uint16_t* p, Tail tail) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(tail.mask, p)); }
// Saturates at 65504. min and max return their second operand when one is NaN, so a NaN passes.
__m256i to_half(__m512 v) {
  const __m512 limit = _mm512_set1_ps(65504.0f);
  v = _mm512_max_ps(_mm512_set1_ps(-65504.0f), _mm512_min_ps(limit, v));
  return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
void store(uint16_t* p, __m512 v, Full) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_half(v)); }
void store(uint16_t* p, __m512 v, Tail tail) { _mm256_mask_storeu_epi16(p, tail.mask, to_half(v)); }

// i with i + 8, + 4, + 2, + 1 (numerics.md section 4).
float tree_sum(__m512 v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

template <typename T>
void rms_norm(const RmsNormArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    __m512 squares = _mm512_setzero_ps();  // never -0, so the zeros beyond the tail change nothing
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      const __m512 value = load(x + i, lanes);
      squares = _mm512_fmadd_ps(value, value, squares);
    });
    const float mean = tree_sum(squares) / float(args.cols);
    const float root = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + args.epsilon)));
    const __m512 inverse = _mm512_set1_ps(1.0f / root);
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      const __m512 scaled = _mm512_mul_ps(load(x + i, lanes), inverse);
      store(y + i, _mm512_mul_ps(scaled, load(args.weight + i, lanes)), lanes);
    });
  }
}

template <typename T>
void rope(const RopeArgs& args) {
  const int64_t half = args.head_dim / 2;
  for (int64_t head = 0; head < args.heads; ++head) {
    const T* x = static_cast<const T*>(args.x) + head * args.x_stride;
    T* y = static_cast<T*>(args.y) + head * args.y_stride;
    for_lanes(half, [&](int64_t i, auto lanes) {
      const __m512 x1 = load(x + i, lanes), x2 = load(x + half + i, lanes);
      const __m512 cos = load(args.cos + i, lanes), sin = load(args.sin + i, lanes);
      store(y + i, _mm512_fnmadd_ps(x2, sin, _mm512_mul_ps(x1, cos)), lanes);
      store(y + half + i, _mm512_fmadd_ps(x1, sin, _mm512_mul_ps(x2, cos)), lanes);
    });
  }
}

}  // namespace

void use_norm_avx512vnni(KernelTable& table) {
  table.rms_norm[kF16] = rms_norm<uint16_t>;
  table.rms_norm[kF32] = rms_norm<float>;
  table.rope[kF16] = rope<uint16_t>;
  table.rope[kF32] = rope<float>;
}

}  // namespace tcim_lite::cpu
