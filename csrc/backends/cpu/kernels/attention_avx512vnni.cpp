#include <immintrin.h>

#include "backends/cpu/kernels/attention_tile_avx512vnni.h"

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

constexpr int kTileRows = 4;
constexpr int64_t kMinTileRows = 16, kMaxTileRows = 64;

// Sums of 16 vectors, each in the order of numerics.md (i with i + 8, + 4, + 2, + 1), lane n for v[n]. Every step
// halves the number of vectors, so 16 sums cost 15 additions.
__m512 tree_sums(const __m512 (&v)[16]) {
  __m512 eight[8], four[4], two[2];
  // Position 4 * lane + p of the result comes from input 4 * p + lane of this network.
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const __m512 a = v[i % 2 * 8 + i / 2], b = v[i % 2 * 8 + 4 + i / 2];
    eight[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 a = eight[2 * i], b = eight[2 * i + 1];
    four[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
  for (int i = 0; i < 2; ++i) {
    const __m512 a = four[2 * i], b = four[2 * i + 1];
    two[i] = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  }
  return _mm512_add_ps(_mm512_shuffle_ps(two[0], two[1], 0x88), _mm512_shuffle_ps(two[0], two[1], 0xdd));
}

float tree_sum(__m512 v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

__m512 multiply_add(__m512 a, __m512 b, __m512 sum, Full) { return _mm512_fmadd_ps(a, b, sum); }
// Lanes beyond the tail keep their sum: adding 0 would turn a -0 into +0.
__m512 multiply_add(__m512 a, __m512 b, __m512 sum, Tail tail) { return _mm512_mask3_fmadd_ps(a, b, sum, tail.mask); }

// Few rows are bound by the stream of K and V, so it is fetched ahead: into the second cache, then into the first
// (benchmarks/notes/cpu-kernels.md). Spread over the arithmetic; in bursts that gains nothing.
struct Ahead {
  const char* near;
  const char* far;

  // Of byte `here` of a stream that is `bytes` long and goes on at `next`.
  Ahead(const void* stream, int64_t here, int64_t bytes, const void* next) {
    const auto at = [&](int64_t offset) {
      return offset < bytes ? static_cast<const char*>(stream) + offset
                            : static_cast<const char*>(next) + (offset - bytes);
    };
    near = at(here + 4096);
    far = at(here + 8192);
  }

  void fetch(int64_t bytes) const {
    _mm_prefetch(near + bytes, _MM_HINT_T0);
    _mm_prefetch(far + bytes, _MM_HINT_T1);
  }
};

// scores[r][key] = q[r] . k[key] for R rows and 16 / R keys; keys beyond `last` repeat it and are not used. After the
// keys, `v` is read.
template <int R, typename T>
void score_keys(const float* q, const T* k, const T* v, int64_t key, int64_t last, int64_t dim, float* scores) {
  constexpr int kKeys = 16 / R;
  const T* rows[kKeys];
  for (int j = 0; j < kKeys; ++j) rows[j] = k + (key + j < last ? key + j : last) * dim;
  constexpr auto kSize = int64_t(sizeof(T));
  const Ahead ahead(k, key * dim * kSize, (last + 1) * dim * kSize, v);
  __m512 sums[16];
  for (int i = 0; i < 16; ++i) sums[i] = _mm512_setzero_ps();
  for_lanes(dim, [&](int64_t d, auto lanes) {
    __m512 query[R];
    for (int r = 0; r < R; ++r) query[r] = load(q + r * dim + d, lanes);
    for (int64_t line = 0; line < kKeys * kSize / 4; ++line) ahead.fetch((d * kKeys * kSize / 64 + line) * 64);
#pragma GCC unroll 16
    for (int j = 0; j < kKeys; ++j) {
      const __m512 values = load(rows[j] + d, lanes);
      for (int r = 0; r < R; ++r) sums[r * kKeys + j] = multiply_add(query[r], values, sums[r * kKeys + j], lanes);
    }
  });
  const __m512 all = tree_sums(sums);
  if constexpr (R == 1) {
    _mm512_storeu_ps(scores + key, all);
  } else if constexpr (R == 2) {
    _mm256_storeu_ps(scores + key, _mm512_castps512_ps256(all));
    _mm256_storeu_ps(scores + kAttentionBlock + key, _mm512_extractf32x8_ps(all, 1));
  } else {
    _mm_storeu_ps(scores + key, _mm512_castps512_ps128(all));
    _mm_storeu_ps(scores + kAttentionBlock + key, _mm512_extractf32x4_ps(all, 1));
    _mm_storeu_ps(scores + 2 * kAttentionBlock + key, _mm512_extractf32x4_ps(all, 2));
    _mm_storeu_ps(scores + 3 * kAttentionBlock + key, _mm512_extractf32x4_ps(all, 3));
  }
}

// Turns the scores of one row into probabilities.
void softmax(float* scores, int64_t keys, float* m, float* l) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  __m512 high = lowest;
  const auto masked = [&](int64_t i) { return __mmask16(keys - i >= 16 ? 0xffffu : (1u << (keys - i)) - 1); };
  for (int64_t i = 0; i < keys; i += 16) high = _mm512_mask_max_ps(high, masked(i), _mm512_load_ps(scores + i), high);
  *m = _mm512_reduce_max_ps(high) + 0.0f;  // -0 becomes +0: which zero a maximum picks depends on the order
  const __m512 shift = _mm512_set1_ps(*m);
  __m512 sums = _mm512_setzero_ps();
  for (int64_t i = 0; i < keys; i += 16) {
    const __m512 p = _mm512_maskz_mov_ps(masked(i), exp16(_mm512_sub_ps(_mm512_load_ps(scores + i), shift)));
    _mm512_store_ps(scores + i, p);
    sums = _mm512_add_ps(sums, p);  // p >= 0: adding the zeros beyond the last key changes nothing
  }
  *l = tree_sum(sums);
}

// o[r][d..] = fma(p[r][key], v[key][d..], o) over keys [begin, end), for R rows and 16 * C outputs, the last C partial.
// After the values, `next` is read.
template <int R, int C, typename T, typename Last>
void weigh_values(const float* p, const T* v, const T* next, int64_t begin, int64_t end, int64_t dim, float* o,
                  Last last) {
  constexpr auto kSize = int64_t(sizeof(T));
  __m512 sums[R][C];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C - 1; ++c) sums[r][c] = _mm512_loadu_ps(o + r * dim + 16 * c);
    sums[r][C - 1] = load(o + r * dim + 16 * (C - 1), last);
  }
  for (int64_t key = begin; key < end; ++key) {
    const T* row = v + key * dim;
    const Ahead ahead(v, key * dim * kSize, end * dim * kSize, next);
    for (int64_t at = 0; at < 16 * C * kSize; at += 64) ahead.fetch(at);
    __m512 values[C];
    for (int c = 0; c < C - 1; ++c) values[c] = load(row + 16 * c, Full{});
    values[C - 1] = load(row + 16 * (C - 1), last);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m512 weight = _mm512_set1_ps(p[r * kAttentionBlock + key]);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sums[r][c] = _mm512_fmadd_ps(weight, values[c], sums[r][c]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C - 1; ++c) _mm512_storeu_ps(o + r * dim + 16 * c, sums[r][c]);
    store(o + r * dim + 16 * (C - 1), sums[r][C - 1], last);
  }
}

template <int R, typename T>
void weigh_all_values(const float* p, const T* v, const T* next, int64_t begin, int64_t end, int64_t dim, float* o) {
  constexpr int kWide = R == 4 ? 4 : 8;
  int64_t d = 0;
  for (; d + 16 * kWide <= dim; d += 16 * kWide)
    weigh_values<R, kWide>(p, v + d, next + d, begin, end, dim, o + d, Full{});
  for (; d + 16 <= dim; d += 16) weigh_values<R, 1>(p, v + d, next + d, begin, end, dim, o + d, Full{});
  if (d < dim) weigh_values<R, 1>(p, v + d, next + d, begin, end, dim, o + d, Tail{__mmask16((1u << (dim - d)) - 1)});
}

// R rows share every load of K and V. Row r uses the keys up to keys[r], ascending, so the rows have keys[0] in common.
template <int R, typename T>
void attend(const AttentionBlockArgs& args, int64_t row) {
  alignas(64) float scores[R * kAttentionBlock];
  const int64_t dim = args.head_dim;
  const float* q = args.q + row * dim;
  const T* k = static_cast<const T*>(args.k);
  const T* v = static_cast<const T*>(args.v);
  const T* next = k + kAttentionBlock * dim;  // the next block's keys, if there is one: only fetched
  float* o = args.o + row * dim;
  const int32_t* keys = args.keys + row;
  const int64_t most = keys[R - 1];
  for (int64_t key = 0; key < most; key += 16 / R) score_keys<R>(q, k, v, key, most - 1, dim, scores);
  for (int r = 0; r < R; ++r) {
    softmax(scores + r * kAttentionBlock, keys[r], args.m + row + r, args.l + row + r);
    for_lanes(dim, [&](int64_t d, auto lanes) { store(o + r * dim + d, _mm512_setzero_ps(), lanes); });
  }
  weigh_all_values<R>(scores, v, next, 0, keys[0], dim, o);
  for (int r = 1; r < R; ++r) {
    if (keys[r] > keys[0]) {
      weigh_all_values<1>(scores + r * kAttentionBlock, v, next, keys[0], keys[r], dim, o + r * dim);
    }
  }
}

// Many rows at a time, so that K and V are converted once for all.
template <Elem elem>
void attend_tile(const AttentionBlockArgs& args, int64_t row, int64_t rows) {
  alignas(64) float scores[kMaxTileRows * kAttentionBlock];
  const int32_t* keys = args.keys + row;
  const int64_t dim = args.head_dim;
  score_tile_avx512vnni(elem, args.q + row * dim, args.k, rows, keys[rows - 1], dim, scores);
  for (int64_t r = 0; r < rows; ++r) softmax(scores + r * kAttentionBlock, keys[r], args.m + row + r, args.l + row + r);
  weigh_tile_avx512vnni(elem, scores, args.v, keys, rows, dim, args.o + row * dim);
}

template <Elem elem, typename T>
void attention_block(const AttentionBlockArgs& args) {
  int64_t row = 0;
  if (args.head_dim <= kMaxTileHeadDim) {
    while (args.rows - row >= kMinTileRows) {
      const int64_t rows = args.rows - row < kMaxTileRows ? args.rows - row : kMaxTileRows;
      attend_tile<elem>(args, row, rows);
      row += rows;
    }
  }
  for (; row + kTileRows <= args.rows; row += kTileRows) attend<kTileRows, T>(args, row);
  for (; row + 2 <= args.rows; row += 2) attend<2, T>(args, row);
  for (; row < args.rows; ++row) attend<1, T>(args, row);
}

float exp1(float x) { return _mm512_cvtss_f32(exp16(_mm512_set1_ps(x))); }

void attention_merge(const AttentionMergeArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float m = args.m[row] > args.running_m[row] ? args.m[row] : args.running_m[row];
    const float a = exp1(args.running_m[row] - m);
    const float b = exp1(args.m[row] - m);
    args.running_m[row] = m;
    const float later = args.l[row] * b;
    args.running_l[row] =
        _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(args.running_l[row]), _mm_set_ss(a), _mm_set_ss(later)));
    const __m512 keep = _mm512_set1_ps(a), take = _mm512_set1_ps(b);
    float* running_o = args.running_o + row * args.head_dim;
    const float* o = args.o + row * args.head_dim;
    for_lanes(args.head_dim, [&](int64_t d, auto lanes) {
      const __m512 product = _mm512_mul_ps(load(o + d, lanes), take);
      store(running_o + d, _mm512_fmadd_ps(load(running_o + d, lanes), keep, product), lanes);
    });
  }
}

template <typename T>
void attention_finish(const AttentionFinishArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* o = args.o + row * args.head_dim;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    const __m512 l = _mm512_set1_ps(args.l[row]);
    for_lanes(args.head_dim, [&](int64_t d, auto lanes) { store(y + d, _mm512_div_ps(load(o + d, lanes), l), lanes); });
  }
}

}  // namespace

void use_attention_avx512vnni(KernelTable& table) {
  table.attention_block[kF16] = attention_block<kF16, uint16_t>;
  table.attention_block[kF32] = attention_block<kF32, float>;
  table.attention_merge = attention_merge;
  table.attention_finish[kF16] = attention_finish<uint16_t>;
  table.attention_finish[kF32] = attention_finish<float>;
}

}  // namespace tcim_lite::cpu
