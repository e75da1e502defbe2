// K and V are turned into fp32 once for all rows, 32 keys at a time, where the first cache holds them. Scores have keys
// in their lanes, so the 16 partial sums of a dot product (numerics.md section 4) are 16 vectors, one after the other,
// and their tree needs no shuffles.
#include "backends/cpu/kernels/attention_tile_avx512vnni.h"

#include <immintrin.h>

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kKeys = 32;  // of a pass: two vectors
constexpr int64_t kLanes = 16;

#define TCIM_LITE_INLINE __attribute__((always_inline)) inline

__m512 load16(const float* p, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, p); }
__m512 load16(const uint16_t* p, __mmask16 mask) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p)); }

__mmask16 lanes_of(int64_t count) { return count >= kLanes ? __mmask16(0xffff) : __mmask16((1u << count) - 1); }

// columns[lane][i] = rows[i][lane] of 16 x 16.
TCIM_LITE_INLINE void transpose(__m512 (&rows)[16]) {
  __m512 pairs[16], quads[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    quads[i] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    quads[i + 1] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
    quads[i + 2] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    quads[i + 3] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
  }
  // quads[4 g + c] holds, in 128-bit lane l, column 4 l + c of rows 4 g .. 4 g + 3.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 low01 = _mm512_shuffle_f32x4(quads[c], quads[4 + c], 0x44);
    const __m512 high01 = _mm512_shuffle_f32x4(quads[c], quads[4 + c], 0xee);
    const __m512 low23 = _mm512_shuffle_f32x4(quads[8 + c], quads[12 + c], 0x44);
    const __m512 high23 = _mm512_shuffle_f32x4(quads[8 + c], quads[12 + c], 0xee);
    rows[c] = _mm512_shuffle_f32x4(low01, low23, 0x88);
    rows[4 + c] = _mm512_shuffle_f32x4(low01, low23, 0xdd);
    rows[8 + c] = _mm512_shuffle_f32x4(high01, high23, 0x88);
    rows[12 + c] = _mm512_shuffle_f32x4(high01, high23, 0xdd);
  }
}

// columns[d][i] = k[i][d] for 32 keys; keys beyond the last repeat it.
template <typename T>
void key_columns(const T* k, int64_t keys, int64_t dim, float* columns) {
  for (int64_t first = 0; first < kKeys; first += kLanes) {
    for (int64_t d = 0; d < dim; d += kLanes) {
      const __mmask16 mask = lanes_of(dim - d);
      __m512 values[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        const int64_t key = first + i < keys ? first + i : keys - 1;
        values[i] = load16(k + key * dim + d, mask);
      }
      transpose(values);
      const int64_t count = dim - d < kLanes ? dim - d : kLanes;
      for (int64_t i = 0; i < count; ++i) _mm512_store_ps(columns + (d + i) * kKeys + first, values[i]);
    }
  }
}

// Partial sums of R rows by two vectors of keys.
template <int R>
struct Sums {
  __m512 v[R][2];
};

// The sum of partial sums First, First + Step, First + 2 Step, ...: the tree of numerics.md, i with i + 8 first.
template <int R, int First, int Step>
TCIM_LITE_INLINE Sums<R> partial_sums(const float* q, const float* columns, int64_t dim) {
  Sums<R> sums;
  if constexpr (Step == 16) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums.v[r][0] = sums.v[r][1] = _mm512_setzero_ps();
    for (int64_t d = First; d < dim; d += 16) {
      const __m512 low = _mm512_load_ps(columns + d * kKeys), high = _mm512_load_ps(columns + d * kKeys + kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512 query = _mm512_set1_ps(q[r * dim + d]);
        sums.v[r][0] = _mm512_fmadd_ps(query, low, sums.v[r][0]);
        sums.v[r][1] = _mm512_fmadd_ps(query, high, sums.v[r][1]);
      }
    }
  } else {
    sums = partial_sums<R, First, 2 * Step>(q, columns, dim);
    const Sums<R> other = partial_sums<R, First + Step, 2 * Step>(q, columns, dim);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      sums.v[r][0] = _mm512_add_ps(sums.v[r][0], other.v[r][0]);
      sums.v[r][1] = _mm512_add_ps(sums.v[r][1], other.v[r][1]);
    }
  }
  return sums;
}

template <int R>
void score_rows(const float* q, const float* columns, int64_t dim, float* scores) {
  const Sums<R> sums = partial_sums<R, 0, 1>(q, columns, dim);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    _mm512_store_ps(scores + r * kAttentionBlock, sums.v[r][0]);
    _mm512_store_ps(scores + r * kAttentionBlock + kLanes, sums.v[r][1]);
  }
}

template <typename T>
void score_tile(const float* q, const T* k, int64_t rows, int64_t keys, int64_t dim, float* scores) {
  alignas(64) float columns[kMaxTileHeadDim * kKeys];
  for (int64_t key = 0; key < keys; key += kKeys) {
    key_columns(k + key * dim, keys - key, dim, columns);
    float* out = scores + key;
    int64_t row = 0;
    for (; row + 8 <= rows; row += 8) score_rows<8>(q + row * dim, columns, dim, out + row * kAttentionBlock);
    for (; row + 2 <= rows; row += 2) score_rows<2>(q + row * dim, columns, dim, out + row * kAttentionBlock);
    if (row < rows) score_rows<1>(q + row * dim, columns, dim, out + row * kAttentionBlock);
  }
}

// o[r][0 .. 16 C) = fma(p[r][key], values[key][..], o) over `keys` keys; the last vector under `last`.
template <int R, int C>
void weigh_rows(const float* p, const float* values, int64_t keys, int64_t stride, int64_t dim, float* o,
                __mmask16 last) {
  __m512 sums[R][C];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sums[r][c] = load16(o + r * dim + c * kLanes, c + 1 < C ? __mmask16(0xffff) : last);
  }
  for (int64_t key = 0; key < keys; ++key) {
    __m512 row[C];
    for (int c = 0; c < C; ++c) row[c] = _mm512_load_ps(values + key * stride + c * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m512 weight = _mm512_set1_ps(p[r * kAttentionBlock + key]);
      for (int c = 0; c < C; ++c) sums[r][c] = _mm512_fmadd_ps(weight, row[c], sums[r][c]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c)
      _mm512_mask_storeu_ps(o + r * dim + c * kLanes, c + 1 < C ? __mmask16(0xffff) : last, sums[r][c]);
  }
}

template <int R>
void weigh_all(const float* p, const float* values, int64_t keys, int64_t stride, int64_t dim, float* o) {
  int64_t d = 0;
  for (; d + 4 * kLanes <= dim; d += 4 * kLanes)
    weigh_rows<R, 4>(p, values + d, keys, stride, dim, o + d, __mmask16(0xffff));
  for (; d < dim; d += kLanes) weigh_rows<R, 1>(p, values + d, keys, stride, dim, o + d, lanes_of(dim - d));
}

// Four rows share the keys that the first of them sees; the rest of each row's keys come one row at a time.
template <typename T>
void weigh_tile(const float* scores, const T* v, const int32_t* keys, int64_t rows, int64_t dim, float* o) {
  alignas(64) float values[kKeys * kMaxTileHeadDim];
  const int64_t stride = (dim + kLanes - 1) / kLanes * kLanes;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t d = 0; d < dim; d += kLanes)
      _mm512_mask_storeu_ps(o + row * dim + d, lanes_of(dim - d), _mm512_setzero_ps());
  }
  const int64_t most = keys[rows - 1];
  for (int64_t first = 0; first < most; first += kKeys) {
    const int64_t count = most - first < kKeys ? most - first : kKeys;
    for (int64_t key = 0; key < count; ++key) {
      for (int64_t d = 0; d < dim; d += kLanes)
        _mm512_store_ps(values + key * stride + d, load16(v + (first + key) * dim + d, lanes_of(dim - d)));
    }
    const auto seen = [&](int64_t row) {
      const int64_t here = keys[row] - first;
      return here < 0 ? 0 : here < count ? here : count;
    };
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) {
      const float* p = scores + row * kAttentionBlock + first;
      const int64_t shared = seen(row);
      if (shared > 0) weigh_all<4>(p, values, shared, stride, dim, o + row * dim);
      for (int64_t r = 1; r < 4; ++r) {
        const int64_t more = seen(row + r) - shared;
        if (more > 0) {
          weigh_all<1>(p + r * kAttentionBlock + shared, values + shared * stride, more, stride, dim,
                       o + (row + r) * dim);
        }
      }
    }
    for (; row < rows; ++row) {
      if (seen(row) > 0)
        weigh_all<1>(scores + row * kAttentionBlock + first, values, seen(row), stride, dim, o + row * dim);
    }
  }
}

}  // namespace

void score_tile_avx512vnni(Elem elem, const float* q, const void* k, int64_t rows, int64_t keys, int64_t dim,
                           float* scores) {
  if (elem == kF16) return score_tile(q, static_cast<const uint16_t*>(k), rows, keys, dim, scores);
  score_tile(q, static_cast<const float*>(k), rows, keys, dim, scores);
}

void weigh_tile_avx512vnni(Elem elem, const float* scores, const void* v, const int32_t* keys, int64_t rows,
                           int64_t dim, float* o) {
  if (elem == kF16) return weigh_tile(scores, static_cast<const uint16_t*>(v), keys, rows, dim, o);
  weigh_tile(scores, static_cast<const float*>(v), keys, rows, dim, o);
}

}  // namespace tcim_lite::cpu
