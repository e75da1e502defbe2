#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

// Eight lanes, or the last one to seven.
struct Full {};
struct Tail {
  int64_t count;
};

template <typename Body>
inline void for_lanes(int64_t count, Body body) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) body(i, Full{});
  if (i < count) body(i, Tail{count - i});
}

__m256i mask(Tail tail) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(int(tail.count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

__m256 load(const float* p, Full) { return _mm256_loadu_ps(p); }
__m256 load(const uint16_t* p, Full) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
__m256 load(const float* p, Tail tail) { return _mm256_maskload_ps(p, mask(tail)); }
// AVX2 has no masked move of 16-bit elements.
__m256 load(const uint16_t* p, Tail tail) {
  alignas(16) uint16_t values[8] = {};
  for (int64_t i = 0; i < tail.count; ++i) values[i] = p[i];
  return load(values, Full{});
}
void store(float* p, __m256 v, Full) { _mm256_storeu_ps(p, v); }
void store(float* p, __m256 v, Tail tail) { _mm256_maskstore_ps(p, mask(tail), v); }
// Saturates at 65504. min and max return their second operand when one is NaN, so a NaN passes.
__m128i to_half(__m256 v) {
  v = _mm256_max_ps(_mm256_set1_ps(-65504.0f), _mm256_min_ps(_mm256_set1_ps(65504.0f), v));
  return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
void store(uint16_t* p, __m256 v, Full) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_half(v)); }
void store(uint16_t* p, __m256 v, Tail tail) {
  alignas(16) uint16_t values[8];
  store(values, v, Full{});
  for (int64_t i = 0; i < tail.count; ++i) p[i] = values[i];
}

// low holds the partial sums 0..7, high 8..15: i with i + 8, + 4, + 2, + 1.
float tree_sum(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

template <typename T>
void rms_norm(const RmsNormArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();  // never -0: the zeros beyond the tail change nothing
    const int64_t pairs = args.cols / 16 * 16;
    for (int64_t i = 0; i < pairs; i += 16) {
      const __m256 first = load(x + i, Full{}), second = load(x + i + 8, Full{});
      low = _mm256_fmadd_ps(first, first, low);
      high = _mm256_fmadd_ps(second, second, high);
    }
    for_lanes(args.cols - pairs, [&](int64_t i, auto lanes) {
      const __m256 value = load(x + pairs + i, lanes);
      __m256& sum = i == 0 ? low : high;
      sum = _mm256_fmadd_ps(value, value, sum);
    });
    const float mean = tree_sum(low, high) / float(args.cols);
    const float root = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + args.epsilon)));
    const __m256 inverse = _mm256_set1_ps(1.0f / root);
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      const __m256 scaled = _mm256_mul_ps(load(x + i, lanes), inverse);
      store(y + i, _mm256_mul_ps(scaled, load(args.weight + i, lanes)), lanes);
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
      const __m256 x1 = load(x + i, lanes), x2 = load(x + half + i, lanes);
      const __m256 cos = load(args.cos + i, lanes), sin = load(args.sin + i, lanes);
      store(y + i, _mm256_fnmadd_ps(x2, sin, _mm256_mul_ps(x1, cos)), lanes);
      store(y + half + i, _mm256_fmadd_ps(x1, sin, _mm256_mul_ps(x2, cos)), lanes);
    });
  }
}

}  // namespace

void use_norm_avx2(KernelTable& table) {
  table.rms_norm[kF16] = rms_norm<uint16_t>;
  table.rms_norm[kF32] = rms_norm<float>;
  table.rope[kF16] = rope<uint16_t>;
  table.rope[kF32] = rope<float>;
}

}  // namespace tcim_lite::cpu
