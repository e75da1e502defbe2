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
void store(float* p, __m256 v, Full) { _mm256_storeu_ps(p, v); }
void store(float* p, __m256 v, Tail tail) { _mm256_maskstore_ps(p, mask(tail), v); }
// Saturates at 65504. min and max return their second operand when one is NaN, so a NaN passes.
__m128i to_half(__m256 v) {
  v = _mm256_max_ps(_mm256_set1_ps(-65504.0f), _mm256_min_ps(_mm256_set1_ps(65504.0f), v));
  return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
void store(uint16_t* p, __m256 v, Full) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_half(v)); }

// One rounding to T, kept in fp32.
template <typename T>
__m256 round_to(__m256 v) {
  if constexpr (sizeof(T) == 2) return _mm256_cvtph_ps(to_half(v));
  return v;
}

// exp_ref of activation_ref.cpp on 8 lanes.
__m256 exp8(__m256 x) {
  const __m256 lowest = _mm256_set1_ps(-0x1.5d589ep+6f), magic = _mm256_set1_ps(0x1.8p+23f);
  const __m256 vanishes = _mm256_cmp_ps(x, lowest, _CMP_LT_OQ);
  x = _mm256_min_ps(_mm256_set1_ps(88.0f), _mm256_max_ps(lowest, x));  // NaN passes as the second operand
  const __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(0x1.715476p+0f), magic);
  const __m256 n = _mm256_sub_ps(shifted, magic);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.62e430p-1f), x);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(0x1.05c610p-29f), r);
  __m256 p = _mm256_set1_ps(0x1.6a23cep-10f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.123a20p-7f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5558f2p-5f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.555492p-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.fffffcp-2f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  const __m256i power =
      _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(shifted), 23), _mm256_set1_epi32(0x3f800000));
  return _mm256_andnot_ps(vanishes, _mm256_mul_ps(p, _mm256_castsi256_ps(power)));
}

__m256 silu(__m256 g) {
  const __m256 minus_g = _mm256_xor_ps(g, _mm256_set1_ps(-0.0f));
  return _mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1.0f), exp8(minus_g)));
}

template <typename T>
void silu_mul_store(const SiluMulStoreArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* acc = args.acc + row * args.acc_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for (int64_t i = 0; i < args.cols; i += 8) {
      const int64_t at = i / 16 * 32 + i % 16;
      __m256 gate = load(acc + at, Full{}), up = load(acc + at + 16, Full{});
      if (args.bias) {
        gate = _mm256_add_ps(gate, load(args.bias + at, Full{}));
        up = _mm256_add_ps(up, load(args.bias + at + 16, Full{}));
      }
      store(y + i, _mm256_mul_ps(silu(round_to<T>(gate)), round_to<T>(up)), Full{});
    }
  }
}

template <typename T>
void silu_mul(const SiluMulArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for (int64_t i = 0; i < args.cols; i += 8) {
      const T* gate = x + i / 16 * 32 + i % 16;
      store(y + i, _mm256_mul_ps(silu(load(gate, Full{})), load(gate + 16, Full{})), Full{});
    }
  }
}

void exp_many(const float* x, float* y, int64_t count) {
  for_lanes(count, [&](int64_t i, auto lanes) { store(y + i, exp8(load(x + i, lanes)), lanes); });
}

}  // namespace

void use_activation_avx2(KernelTable& table) {
  table.silu_mul_store[kF16] = silu_mul_store<uint16_t>;
  table.silu_mul_store[kF32] = silu_mul_store<float>;
  table.silu_mul[kF16] = silu_mul<uint16_t>;
  table.silu_mul[kF32] = silu_mul<float>;
  table.exp = exp_many;
}

}  // namespace tcim_lite::cpu
