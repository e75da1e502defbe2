// Attention with two ymm registers for the 16 partial sums. Heads whose dimension is not a multiple of 16 keep ref.
#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

// For the other dimensions.
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
float dot(const float* q, const T* k, int64_t dim) {
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  for (int64_t d = 0; d < dim; d += 16) {
    low = _mm256_fmadd_ps(load(q + d), load(k + d), low);
    high = _mm256_fmadd_ps(load(q + d + 8), load(k + d + 8), high);
  }
  return tree_sum(low, high);
}

// o[d..d+16) over all keys of one row.
template <typename T>
void weigh_values(const float* p, const T* v, int64_t keys, int64_t dim, float* o) {
  for (int64_t d = 0; d < dim; d += 16) {
    __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
    for (int64_t key = 0; key < keys; ++key) {
      const __m256 weight = _mm256_set1_ps(p[key]);
      low = _mm256_fmadd_ps(weight, load(v + key * dim + d), low);
      high = _mm256_fmadd_ps(weight, load(v + key * dim + d + 8), high);
    }
    _mm256_storeu_ps(o + d, low);
    _mm256_storeu_ps(o + d + 8, high);
  }
}

template <typename T>
void attention_block(const AttentionBlockArgs& args) {
  if (args.head_dim % 16 != 0) return ref().attention_block[sizeof(T) == 2 ? kF16 : kF32](args);
  const int64_t dim = args.head_dim;
  for (int64_t row = 0; row < args.rows; ++row) {
    alignas(32) float p[kAttentionBlock];
    const int64_t keys = args.keys[row];
    const T* k = static_cast<const T*>(args.k);
    float m = -__builtin_inff();
    for (int64_t key = 0; key < keys; ++key) {
      p[key] = dot(args.q + row * dim, k + key * dim, dim);
      if (p[key] > m) m = p[key];
    }
    m += 0.0f;
    const int64_t padded = (keys + 15) / 16 * 16;
    for (int64_t key = keys; key < padded; ++key) p[key] = -__builtin_inff();  // exp gives 0, which changes no sum
    const __m256 shift = _mm256_set1_ps(m);
    __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
    for (int64_t key = 0; key < padded; key += 16) {
      const __m256 first = exp8(_mm256_sub_ps(_mm256_load_ps(p + key), shift));
      const __m256 second = exp8(_mm256_sub_ps(_mm256_load_ps(p + key + 8), shift));
      _mm256_store_ps(p + key, first);
      _mm256_store_ps(p + key + 8, second);
      low = _mm256_add_ps(low, first);
      high = _mm256_add_ps(high, second);
    }
    args.m[row] = m;
    args.l[row] = tree_sum(low, high);
    weigh_values(p, static_cast<const T*>(args.v), keys, dim, args.o + row * dim);
  }
}

}  // namespace

void use_attention_avx2(KernelTable& table) {
  table.attention_block[kF16] = attention_block<uint16_t>;
  table.attention_block[kF32] = attention_block<float>;
}

}  // namespace tcim_lite::cpu
