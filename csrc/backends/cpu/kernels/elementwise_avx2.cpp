#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

template <typename T>
constexpr Elem kElem = sizeof(T) == 2 ? kF16 : kF32;

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

// One rounding to T, kept in fp32.
template <typename T>
__m256 round_to(__m256 v) {
  if constexpr (sizeof(T) == 2) return _mm256_cvtph_ps(to_half(v));
  return v;
}

template <typename T>
void store_rows(const StoreArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* acc = args.acc + row * args.acc_stride;
    const T* residual = args.residual ? static_cast<const T*>(args.residual) + row * args.residual_stride : nullptr;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      __m256 value = load(acc + i, lanes);
      if (args.bias) value = _mm256_add_ps(value, load(args.bias + i, lanes));
      if (residual) value = _mm256_add_ps(load(residual + i, lanes), round_to<T>(value));
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
      store(y + i, _mm256_add_ps(load(a + i, lanes), load(b + i, lanes)), lanes);
    });
  }
}

template <typename T>
void widen(const WidenArgs& args) {
  const __m256 factor = _mm256_set1_ps(args.factor);
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    float* y = args.y + row * args.y_stride;
    for_lanes(args.cols,
              [&](int64_t i, auto lanes) { store(y + i, _mm256_mul_ps(load(x + i, lanes), factor), lanes); });
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

template <typename T>
bool all_finite(const FiniteArgs& args) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  const __m256 largest = _mm256_set1_ps(0x1.fffffep+127f);
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    __m256 beyond = _mm256_setzero_ps();
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      const __m256 size = _mm256_and_ps(load(x + i, lanes), magnitude);
      beyond = _mm256_or_ps(beyond, _mm256_cmp_ps(size, largest, _CMP_NLE_UQ));
    });
    if (_mm256_movemask_ps(beyond) != 0) return false;
  }
  return true;
}

template <typename T>
void use(KernelTable& table) {
  table.store[kElem<T>] = store_rows<T>;
  table.add[kElem<T>] = add<T>;
  table.widen[kElem<T>] = widen<T>;
  table.narrow[kElem<T>] = narrow<T>;
  table.all_finite[kElem<T>] = all_finite<T>;
}

}  // namespace

void use_elementwise_avx2(KernelTable& table) {
  use<uint16_t>(table);
  use<float>(table);
}

}  // namespace tcim_lite::cpu
