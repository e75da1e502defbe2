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

// Sums of four vector pairs, lane n for low[n] and high[n], each in the order of tree_sum.
__m128 tree_sums(const __m256 (&low)[4], const __m256 (&high)[4]) {
  __m256 eight[4], four[2];
  for (int i = 0; i < 4; ++i) eight[i] = _mm256_add_ps(low[i], high[i]);
  for (int i = 0; i < 2; ++i) {
    const __m256 a = eight[2 * i], b = eight[2 * i + 1];
    four[i] = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
  const __m256 two =
      _mm256_add_ps(_mm256_shuffle_ps(four[0], four[1], 0x44), _mm256_shuffle_ps(four[0], four[1], 0xee));
  const __m256 one = _mm256_add_ps(_mm256_shuffle_ps(two, two, 0x88), _mm256_shuffle_ps(two, two, 0xdd));
  return _mm_unpacklo_ps(_mm256_castps256_ps128(one), _mm256_extractf128_ps(one, 1));
}

// scores[r][key] = q[r] . k[key] for R rows and 4 / R keys; keys beyond `last` repeat it and are not used. The zeros
// beyond a tail may turn a partial sum of -0 into +0, which no probability and no maximum shows.
template <int R, typename T>
void score_keys(const float* q, const T* k, int64_t key, int64_t last, int64_t dim, float* scores) {
  constexpr int kKeys = 4 / R;
  const T* rows[kKeys];
  for (int j = 0; j < kKeys; ++j) rows[j] = k + (key + j < last ? key + j : last) * dim;
  __m256 low[4], high[4];
  for (int i = 0; i < 4; ++i) low[i] = high[i] = _mm256_setzero_ps();
  const auto add_products = [&](int64_t d, auto lanes, __m256* sums) {
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; ++j) {
      const __m256 values = load(rows[j] + d, lanes);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        __m256& sum = sums[r * kKeys + j];
        sum = _mm256_fmadd_ps(load(q + r * dim + d, lanes), values, sum);
      }
    }
  };
  const int64_t pairs = dim / 16 * 16;
  for (int64_t d = 0; d < pairs; d += 16) {
    add_products(d, Full{}, low);
    add_products(d + 8, Full{}, high);
  }
  for_lanes(dim - pairs, [&](int64_t d, auto lanes) { add_products(pairs + d, lanes, d == 0 ? low : high); });
  const __m128 all = tree_sums(low, high);
  if constexpr (R == 1) {
    _mm_storeu_ps(scores + key, all);
  } else if constexpr (R == 2) {
    _mm_storel_pi(reinterpret_cast<__m64*>(scores + key), all);
    _mm_storeh_pi(reinterpret_cast<__m64*>(scores + kAttentionBlock + key), all);
  } else {
    alignas(16) float own[4];
    _mm_store_ps(own, all);
    for (int r = 0; r < R; ++r) scores[r * kAttentionBlock + key] = own[r];
  }
}

// Turns the scores of one row into probabilities. exp(-inf - m) is 0, which changes no sum.
void softmax(float* scores, int64_t keys, float* m, float* l) {
  const int64_t padded = (keys + 15) / 16 * 16;
  for (int64_t key = keys; key < padded; ++key) scores[key] = -__builtin_inff();
  __m256 high = _mm256_set1_ps(-__builtin_inff());
  for (int64_t key = 0; key < padded; key += 8) high = _mm256_max_ps(_mm256_load_ps(scores + key), high);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(high), _mm256_extractf128_ps(high, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  *m = _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four))) + 0.0f;  // -0 becomes +0: which zero wins is order
  const __m256 shift = _mm256_set1_ps(*m);
  __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int64_t key = 0; key < padded; key += 16) {
    for (int half = 0; half < 2; ++half) {
      float* at = scores + key + 8 * half;
      const __m256 p = exp8(_mm256_sub_ps(_mm256_load_ps(at), shift));
      _mm256_store_ps(at, p);
      sums[half] = _mm256_add_ps(sums[half], p);
    }
  }
  *l = tree_sum(sums[0], sums[1]);
}

// o[r][d..] = fma(p[r][key], v[key][d..], o) over keys [begin, end), for R rows and 8 * C outputs, the last C partial.
template <int R, int C, typename T, typename Last>
void weigh_values(const float* p, const T* v, int64_t begin, int64_t end, int64_t dim, float* o, Last last) {
  __m256 sums[R][C];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C - 1; ++c) sums[r][c] = load(o + r * dim + 8 * c, Full{});
    sums[r][C - 1] = load(o + r * dim + 8 * (C - 1), last);
  }
  for (int64_t key = begin; key < end; ++key) {
    const T* row = v + key * dim;
    __m256 weights[R];
    for (int r = 0; r < R; ++r) weights[r] = _mm256_set1_ps(p[r * kAttentionBlock + key]);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const __m256 values = c < C - 1 ? load(row + 8 * c, Full{}) : load(row + 8 * c, last);
      for (int r = 0; r < R; ++r) sums[r][c] = _mm256_fmadd_ps(weights[r], values, sums[r][c]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C - 1; ++c) store(o + r * dim + 8 * c, sums[r][c], Full{});
    store(o + r * dim + 8 * (C - 1), sums[r][C - 1], last);
  }
}

// Eight sums: as many as two units of four cycles need.
template <int R, typename T>
void weigh_all_values(const float* p, const T* v, int64_t begin, int64_t end, int64_t dim, float* o) {
  constexpr int kWide = 8 / R;
  int64_t d = 0;
  for (; d + 8 * kWide <= dim; d += 8 * kWide) weigh_values<R, kWide>(p, v + d, begin, end, dim, o + d, Full{});
  for (; d + 8 <= dim; d += 8) weigh_values<R, 1>(p, v + d, begin, end, dim, o + d, Full{});
  if (d < dim) weigh_values<R, 1>(p, v + d, begin, end, dim, o + d, Tail{dim - d});
}

// R rows share every load of K and V. Row r uses the keys up to keys[r], ascending, so the rows have keys[0] in common.
template <int R, typename T>
void attend(const AttentionBlockArgs& args, int64_t row) {
  alignas(32) float scores[R * kAttentionBlock];
  const int64_t dim = args.head_dim;
  const float* q = args.q + row * dim;
  const T* k = static_cast<const T*>(args.k);
  const T* v = static_cast<const T*>(args.v);
  float* o = args.o + row * dim;
  const int32_t* keys = args.keys + row;
  const int64_t most = keys[R - 1];
  for (int64_t key = 0; key < most; key += 4 / R) score_keys<R>(q, k, key, most - 1, dim, scores);
  for (int r = 0; r < R; ++r) softmax(scores + r * kAttentionBlock, keys[r], args.m + row + r, args.l + row + r);
  for (int64_t d = 0; d < R * dim; ++d) o[d] = 0.0f;
  weigh_all_values<R>(scores, v, 0, keys[0], dim, o);
  for (int r = 1; r < R; ++r) {
    if (keys[r] > keys[0]) {
      weigh_all_values<1>(scores + r * kAttentionBlock, v, keys[0], keys[r], dim, o + r * dim);
    }
  }
}

template <typename T>
void attention_block(const AttentionBlockArgs& args) {
  int64_t row = 0;
  for (; row + 4 <= args.rows; row += 4) attend<4, T>(args, row);
  for (; row + 2 <= args.rows; row += 2) attend<2, T>(args, row);
  for (; row < args.rows; ++row) attend<1, T>(args, row);
}

float exp1(float x) { return _mm256_cvtss_f32(exp8(_mm256_set1_ps(x))); }

void attention_merge(const AttentionMergeArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float m = args.m[row] > args.running_m[row] ? args.m[row] : args.running_m[row];
    const float a = exp1(args.running_m[row] - m);
    const float b = exp1(args.m[row] - m);
    args.running_m[row] = m;
    args.running_l[row] =
        _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(args.running_l[row]), _mm_set_ss(a), _mm_set_ss(args.l[row] * b)));
    const __m256 keep = _mm256_set1_ps(a), take = _mm256_set1_ps(b);
    float* running_o = args.running_o + row * args.head_dim;
    const float* o = args.o + row * args.head_dim;
    for_lanes(args.head_dim, [&](int64_t d, auto lanes) {
      const __m256 later = _mm256_mul_ps(load(o + d, lanes), take);
      store(running_o + d, _mm256_fmadd_ps(load(running_o + d, lanes), keep, later), lanes);
    });
  }
}

template <typename T>
void attention_finish(const AttentionFinishArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* o = args.o + row * args.head_dim;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    const __m256 l = _mm256_set1_ps(args.l[row]);
    for_lanes(args.head_dim, [&](int64_t d, auto lanes) { store(y + d, _mm256_div_ps(load(o + d, lanes), l), lanes); });
  }
}

}  // namespace

void use_attention_avx2(KernelTable& table) {
  table.attention_block[kF16] = attention_block<uint16_t>;
  table.attention_block[kF32] = attention_block<float>;
  table.attention_merge = attention_merge;
  table.attention_finish[kF16] = attention_finish<uint16_t>;
  table.attention_finish[kF32] = attention_finish<float>;
}

}  // namespace tcim_lite::cpu
