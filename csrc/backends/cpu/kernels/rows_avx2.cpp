// The row-by-row kernels of a forward pass, 8 lanes. Widths that are not a multiple of 16 keep ref.
#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {

namespace {

constexpr int64_t kGroup = 64;

template <typename T>
constexpr Elem kElem = sizeof(T) == 2 ? kF16 : kF32;

// For the other widths.
const KernelTable& ref() {
  static const KernelTable table = [] {
    KernelTable filled{};
    use_ref(filled);
    return filled;
  }();
  return table;
}

__m256 load(const float* p) { return _mm256_loadu_ps(p); }
__m256 load(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
void store(float* p, __m256 v) { _mm256_storeu_ps(p, v); }
// Saturates at 65504. min and max return their second operand when one is NaN, so a NaN passes.
__m128i to_half(__m256 v) {
  v = _mm256_max_ps(_mm256_set1_ps(-65504.0f), _mm256_min_ps(_mm256_set1_ps(65504.0f), v));
  return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
void store(uint16_t* p, __m256 v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_half(v)); }
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

// low holds the partial sums 0..7, high 8..15: i with i + 8, + 4, + 2, + 1.
float tree_sum(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

template <typename T>
void rms_norm(const RmsNormArgs& args) {
  if (args.cols % 16 != 0) return ref().rms_norm[kElem<T>](args);
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
    for (int64_t i = 0; i < args.cols; i += 16) {
      const __m256 first = load(x + i), second = load(x + i + 8);
      low = _mm256_fmadd_ps(first, first, low);
      high = _mm256_fmadd_ps(second, second, high);
    }
    const float mean = tree_sum(low, high) / float(args.cols);
    const float root = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + args.epsilon)));
    const __m256 inverse = _mm256_set1_ps(1.0f / root);
    for (int64_t i = 0; i < args.cols; i += 8) {
      store(y + i, _mm256_mul_ps(_mm256_mul_ps(load(x + i), inverse), load(args.weight + i)));
    }
  }
}

template <typename T>
void quantize(const QuantizeArgs& args) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    for (int64_t group = 0; group < args.groups; ++group, x += kGroup) {
      __m256 amax = _mm256_setzero_ps();
      for (int i = 0; i < kGroup; i += 8) amax = _mm256_max_ps(amax, _mm256_and_ps(load(x + i), magnitude));
      __m128 four = _mm_max_ps(_mm256_castps256_ps128(amax), _mm256_extractf128_ps(amax, 1));
      four = _mm_max_ps(four, _mm_movehl_ps(four, four));
      four = _mm_max_ss(four, _mm_movehdup_ps(four));
      int exponent = (_mm_cvtsi128_si32(_mm_castps_si128(four)) >> 23) - 127 - 6;
      exponent = exponent < -30 ? -30 : exponent;
      exponent = exponent > 9 ? 9 : exponent;
      const __m256 inverse = _mm256_castsi256_ps(_mm256_set1_epi32((127 - exponent) << 23));
      int8_t* codes = args.codes + (row * args.groups + group) * kGroup;
      __m256i sum = _mm256_setzero_si256();
      for (int i = 0; i < kGroup; i += 8) {
        __m256 scaled = _mm256_max_ps(_mm256_mul_ps(load(x + i), inverse), _mm256_set1_ps(-127.0f));
        scaled = _mm256_min_ps(scaled, _mm256_set1_ps(127.0f));
        const __m256i code = _mm256_cvtps_epi32(scaled);
        sum = _mm256_add_epi32(sum, code);
        const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(codes + i), _mm_packs_epi16(words, words));
      }
      __m128i total = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
      total = _mm_add_epi32(total, _mm_shuffle_epi32(total, 0x4e));
      total = _mm_add_epi32(total, _mm_shuffle_epi32(total, 0xb1));
      args.sums[row * args.groups + group] = _mm_cvtsi128_si32(total);
      args.scales[row * args.groups + group] =
          _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((exponent + 127) << 23)));
    }
  }
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
      __m256 gate = load(acc + at), up = load(acc + at + 16);
      if (args.bias) {
        gate = _mm256_add_ps(gate, load(args.bias + at));
        up = _mm256_add_ps(up, load(args.bias + at + 16));
      }
      store(y + i, _mm256_mul_ps(silu(round_to<T>(gate)), round_to<T>(up)));
    }
  }
}

template <typename T>
void store_rows(const StoreArgs& args) {
  if (args.cols % 8 != 0) return ref().store[kElem<T>](args);
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* acc = args.acc + row * args.acc_stride;
    const T* residual = args.residual ? static_cast<const T*>(args.residual) + row * args.residual_stride : nullptr;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for (int64_t i = 0; i < args.cols; i += 8) {
      __m256 value = load(acc + i);
      if (args.bias) value = _mm256_add_ps(value, load(args.bias + i));
      if (residual) value = _mm256_add_ps(load(residual + i), round_to<T>(value));
      store(y + i, value);
    }
  }
}

template <typename T>
void rope(const RopeArgs& args) {
  const int64_t half = args.head_dim / 2;
  if (half % 8 != 0) return ref().rope[kElem<T>](args);
  for (int64_t head = 0; head < args.heads; ++head) {
    const T* x = static_cast<const T*>(args.x) + head * args.x_stride;
    T* y = static_cast<T*>(args.y) + head * args.y_stride;
    for (int64_t i = 0; i < half; i += 8) {
      const __m256 x1 = load(x + i), x2 = load(x + half + i), cos = load(args.cos + i), sin = load(args.sin + i);
      store(y + i, _mm256_fnmadd_ps(x2, sin, _mm256_mul_ps(x1, cos)));
      store(y + half + i, _mm256_fmadd_ps(x1, sin, _mm256_mul_ps(x2, cos)));
    }
  }
}

template <typename T>
void widen(const WidenArgs& args) {
  if (args.cols % 8 != 0) return ref().widen[kElem<T>](args);
  const __m256 factor = _mm256_set1_ps(args.factor);
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    float* y = args.y + row * args.y_stride;
    for (int64_t i = 0; i < args.cols; i += 8) store(y + i, _mm256_mul_ps(load(x + i), factor));
  }
}

template <typename T>
void add(const AddArgs& args) {
  if (args.cols % 8 != 0) return ref().add[kElem<T>](args);
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* a = static_cast<const T*>(args.a) + row * args.a_stride;
    const T* b = static_cast<const T*>(args.b) + row * args.b_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for (int64_t i = 0; i < args.cols; i += 8) store(y + i, _mm256_add_ps(load(a + i), load(b + i)));
  }
}

template <typename T>
void use(KernelTable& table) {
  table.rope[kElem<T>] = rope<T>;
  table.widen[kElem<T>] = widen<T>;
  table.add[kElem<T>] = add<T>;
  table.rms_norm[kElem<T>] = rms_norm<T>;
  table.quantize[kElem<T>] = quantize<T>;
  table.silu_mul_store[kElem<T>] = silu_mul_store<T>;
  table.store[kElem<T>] = store_rows<T>;
}

void exp_many(const float* x, float* y, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) store(y + i, exp8(load(x + i)));
  if (i < count) ref().exp(x + i, y + i, count - i);
}

}  // namespace

void use_rows_avx2(KernelTable& table) {
  use<uint16_t>(table);
  use<float>(table);
  table.exp = exp_many;
}

}  // namespace tcim_lite::cpu
