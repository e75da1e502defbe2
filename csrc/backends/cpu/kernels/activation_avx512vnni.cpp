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
// Saturates at 65504. min and max return their second operand when one is NaN, so a NaN passes.
__m256i to_half(__m512 v) {
  const __m512 limit = _mm512_set1_ps(65504.0f);
  v = _mm512_max_ps(_mm512_set1_ps(-65504.0f), _mm512_min_ps(limit, v));
  return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
void store(uint16_t* p, __m512 v, Full) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_half(v)); }

// One rounding to T, kept in fp32.
template <typename T>
__m512 round_to(__m512 v) {
  if constexpr (sizeof(T) == 2) return _mm512_cvtph_ps(to_half(v));
  return v;
}

// exp_ref of activation_ref.cpp on 16 lanes.
__m512 exp16(__m512 x) {
  const __m512 lowest = _mm512_set1_ps(-0x1.5d589ep+6f), magic = _mm512_set1_ps(0x1.8p+23f);
  const __mmask16 vanishes = _mm512_cmp_ps_mask(x, lowest, _CMP_LT_OQ);
  x = _mm512_min_ps(_mm512_set1_ps(88.0f), _mm512_max_ps(lowest, x));  // NaN passes as the second operand
  const __m512 shifted = _mm512_fmadd_ps(x, _mm512_set1_ps(0x1.715476p+0f), magic);
  const __m512 n = _mm512_sub_ps(shifted, magic);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.62e430p-1f), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(0x1.05c610p-29f), r);
  __m512 p = _mm512_set1_ps(0x1.6a23cep-10f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.123a20p-7f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.5558f2p-5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.555492p-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffffcp-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  const __m512i power =
      _mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(shifted), 23), _mm512_set1_epi32(0x3f800000));
  return _mm512_maskz_mul_ps(_knot_mask16(vanishes), p, _mm512_castsi512_ps(power));
}

__m512 silu(__m512 g) {
  const __m512 minus_g = _mm512_xor_ps(g, _mm512_set1_ps(-0.0f));
  return _mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1.0f), exp16(minus_g)));
}

template <typename T>
void silu_mul_store(const SiluMulStoreArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* acc = args.acc + row * args.acc_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for (int64_t i = 0; i < args.cols; i += 16) {
      __m512 gate = _mm512_loadu_ps(acc + 2 * i), up = _mm512_loadu_ps(acc + 2 * i + 16);
      if (args.bias) {
        gate = _mm512_add_ps(gate, _mm512_loadu_ps(args.bias + 2 * i));
        up = _mm512_add_ps(up, _mm512_loadu_ps(args.bias + 2 * i + 16));
      }
      store(y + i, _mm512_mul_ps(silu(round_to<T>(gate)), round_to<T>(up)), Full{});
    }
  }
}

template <typename T>
void silu_mul(const SiluMulArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for (int64_t i = 0; i < args.cols; i += 16) {
      store(y + i, _mm512_mul_ps(silu(load(x + 2 * i, Full{})), load(x + 2 * i + 16, Full{})), Full{});
    }
  }
}

void exp_many(const float* x, float* y, int64_t count) {
  for_lanes(count, [&](int64_t i, auto lanes) { store(y + i, exp16(load(x + i, lanes)), lanes); });
}

}  // namespace

void use_activation_avx512vnni(KernelTable& table) {
  table.silu_mul_store[kF16] = silu_mul_store<uint16_t>;
  table.silu_mul_store[kF32] = silu_mul_store<float>;
  table.silu_mul[kF16] = silu_mul<uint16_t>;
  table.silu_mul[kF32] = silu_mul<float>;
  table.exp = exp_many;
}

}  // namespace tcim_lite::cpu
