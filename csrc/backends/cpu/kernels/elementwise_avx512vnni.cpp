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

// One rounding to T, kept in fp32.
template <typename T>
__m512 round_to(__m512 v) {
  if constexpr (sizeof(T) == 2) return _mm512_cvtph_ps(to_half(v));
  return v;
}

template <typename T>
void store_rows(const StoreArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* acc = args.acc + row * args.acc_stride;
    const T* residual = args.residual ? static_cast<const T*>(args.residual) + row * args.residual_stride : nullptr;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      __m512 value = load(acc + i, lanes);
      if (args.bias) value = _mm512_add_ps(value, load(args.bias + i, lanes));
      if (residual) value = _mm512_add_ps(load(residual + i, lanes), round_to<T>(value));
      store(y + i, value, lanes);
    });
  }
}

template <typename T>
void add(const AddArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* a = static_cast<const T*>(args.a) + row * args.a_stride;
    const T* b = static_cast<const T*>(args.b) + row * args.b_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      store(y + i, _mm512_add_ps(load(a + i, lanes), load(b + i, lanes)), lanes);
    });
  }
}

template <typename T>
void widen(const WidenArgs& args) {
  const __m512 factor = _mm512_set1_ps(args.factor);
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    float* y = args.y + row * args.y_stride;
    for_lanes(args.cols,
              [&](int64_t i, auto lanes) { store(y + i, _mm512_mul_ps(load(x + i, lanes), factor), lanes); });
  }
}

template <typename T>
void narrow(const NarrowArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for_lanes(args.cols, [&](int64_t i, auto lanes) { store(y + i, load(x + i, lanes), lanes); });
  }
}

// A value that is NaN or infinite has all exponent bits set; x - x is then NaN and stays NaN in a sum.
template <typename T>
bool all_finite(const FiniteArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    __m512 differences = _mm512_setzero_ps();
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      const __m512 value = load(x + i, lanes);
      differences = _mm512_add_ps(differences, _mm512_sub_ps(value, value));
    });
    if (_mm512_cmp_ps_mask(differences, differences, _CMP_UNORD_Q) != 0) return false;
  }
  return true;
}

template <typename T>
void use(KernelTable& table, Elem elem) {
  table.store[elem] = store_rows<T>;
  table.add[elem] = add<T>;
  table.widen[elem] = widen<T>;
  table.narrow[elem] = narrow<T>;
  table.all_finite[elem] = all_finite<T>;
}

}  // namespace

void use_elementwise_avx512vnni(KernelTable& table) {
  use<uint16_t>(table, kF16);
  use<float>(table, kF32);
}

}  // namespace tcim_lite::cpu
