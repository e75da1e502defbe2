// Attention of many query rows over one block of keys, for instruction sets that can transpose 16 Vecs in registers. K
// and V are turned into fp32 once for all rows, 32 keys at a time, where the first cache holds them. Scores have keys
// in their lanes, so the 16 partial sums of a dot product (docs/numerics.md section 6) are 16 vectors, one after the
// other, and their tree needs no shuffles.
#pragma once

#include "backends/cpu/kernels/simd.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kMinTileRows = 16, kMaxTileRows = 64;
constexpr int64_t kMaxTileHeadDim = 256;  // elements; wider heads take the path for few rows
constexpr int64_t kTileKeys = 32;         // of a pass: two Vecs

// columns[d][i] = k[i][d] for 32 keys; keys beyond the last repeat it.
template <typename T>
void key_columns(const T* k, int64_t keys, int64_t dim, float* columns) {
  for (int64_t first = 0; first < kTileKeys; first += kLanes) {
    for_lanes(dim, [&](int64_t d, auto lanes) {
      Vec values[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        const int64_t key = first + i < keys ? first + i : keys - 1;
        values[i] = load(k + key * dim + d, lanes);
      }
      transpose(values);
      const int64_t count = dim - d < kLanes ? dim - d : kLanes;
      for (int64_t i = 0; i < count; ++i) store(columns + (d + i) * kTileKeys + first, values[i]);
    });
  }
}

// Partial sums of R rows by two vectors of keys.
template <int R>
struct Sums {
  Vec v[R][2];
};

// The sum of partial sums First, First + Step, First + 2 Step, ...: the tree of numerics.md, i with i + 8 first.
template <int R, int First, int Step>
inline __attribute__((always_inline)) Sums<R> partial_sums(const float* q, const float* columns, int64_t dim) {
  Sums<R> sums;
  if constexpr (Step == 16) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums.v[r][0] = sums.v[r][1] = broadcast(0.0f);
    for (int64_t d = First; d < dim; d += 16) {
      const Vec low = load(columns + d * kTileKeys), high = load(columns + d * kTileKeys + kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Vec query = broadcast(q[r * dim + d]);
        sums.v[r][0] = fma(query, low, sums.v[r][0]);
        sums.v[r][1] = fma(query, high, sums.v[r][1]);
      }
    }
  } else {
    sums = partial_sums<R, First, 2 * Step>(q, columns, dim);
    const Sums<R> other = partial_sums<R, First + Step, 2 * Step>(q, columns, dim);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      sums.v[r][0] = sums.v[r][0] + other.v[r][0];
      sums.v[r][1] = sums.v[r][1] + other.v[r][1];
    }
  }
  return sums;
}

template <int R>
void score_rows(const float* q, const float* columns, int64_t dim, float* scores) {
  const Sums<R> sums = partial_sums<R, 0, 1>(q, columns, dim);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    store(scores + r * kAttentionBlock, sums.v[r][0]);
    store(scores + r * kAttentionBlock + kLanes, sums.v[r][1]);
  }
}

// scores[r * kAttentionBlock + key] = q[r] . k[key] of keys from `first` on. Up to 31 scores behind the last key are
// written too.
template <typename T>
void score_tile(const float* q, const T* k, int64_t rows, int64_t first, int64_t keys, int64_t dim, float* scores) {
  alignas(64) float columns[kMaxTileHeadDim * kTileKeys];
  for (int64_t key = first; key < keys; key += kTileKeys) {
    key_columns(k + key * dim, keys - key, dim, columns);
    float* out = scores + key;
    int64_t row = 0;
    for (; row + 8 <= rows; row += 8) score_rows<8>(q + row * dim, columns, dim, out + row * kAttentionBlock);
    for (; row + 2 <= rows; row += 2) score_rows<2>(q + row * dim, columns, dim, out + row * kAttentionBlock);
    if (row < rows) score_rows<1>(q + row * dim, columns, dim, out + row * kAttentionBlock);
  }
}

// o[r][0 .. 16 C) = fma(p[r][key], values[key][..], o) over `keys` keys; the last vector has the lanes of `last`.
template <int R, int C, typename Last>
void weigh_rows(const float* p, const float* values, int64_t keys, int64_t stride, int64_t dim, float* o, Last last) {
  Vec sums[R][C];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C - 1; ++c) sums[r][c] = load(o + r * dim + c * kLanes);
    sums[r][C - 1] = load(o + r * dim + (C - 1) * kLanes, last);
  }
  for (int64_t key = 0; key < keys; ++key) {
    Vec row[C];
    for (int c = 0; c < C; ++c) row[c] = load(values + key * stride + c * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const Vec weight = broadcast(p[r * kAttentionBlock + key]);
      for (int c = 0; c < C; ++c) sums[r][c] = fma(weight, row[c], sums[r][c]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C - 1; ++c) store(o + r * dim + c * kLanes, sums[r][c]);
    store(o + r * dim + (C - 1) * kLanes, sums[r][C - 1], last);
  }
}

template <int R>
void weigh_all(const float* p, const float* values, int64_t keys, int64_t stride, int64_t dim, float* o) {
  const int64_t wide = dim / (4 * kLanes) * (4 * kLanes);
  for (int64_t d = 0; d < wide; d += 4 * kLanes) weigh_rows<R, 4>(p, values + d, keys, stride, dim, o + d, Full{});
  for_lanes(dim - wide, [&](int64_t i, auto lanes) {
    weigh_rows<R, 1>(p, values + wide + i, keys, stride, dim, o + wide + i, lanes);
  });
}

template <int Count>
struct Together {
  static constexpr int kCount = Count;
};

// o[r] = sum over keys of scores[r * kAttentionBlock + key] * v[key], keys ascending, of the keys that a row sees. Four
// rows share the keys that all of them see; the rest of each row's keys come one row at a time.
template <typename T>
void weigh_tile(const AttentionBlockArgs& args, int64_t first_row, int64_t rows, int64_t first_key,
                const float* scores) {
  alignas(64) float values[kTileKeys * kMaxTileHeadDim];
  const T* v = static_cast<const T*>(args.v);
  const int32_t* keys = args.keys + first_row;
  const int64_t dim = args.head_dim;
  float* o = args.o + first_row * dim;
  const int64_t stride = (dim + kLanes - 1) / kLanes * kLanes;
  for_lanes(rows * dim, [&](int64_t d, auto lanes) { store(o + d, broadcast(0.0f), lanes); });
  const int64_t most = keys[rows - 1];
  for (int64_t first = first_key; first < most; first += kTileKeys) {
    const int64_t count = most - first < kTileKeys ? most - first : kTileKeys;
    for (int64_t key = 0; key < count; ++key) {
      for_lanes(dim, [&](int64_t d, auto lanes) {
        store(values + key * stride + d, load(v + (first + key) * dim + d, lanes));
      });
    }
    const auto inside = [&](int64_t key) {
      const int64_t here = key - first;
      return here < 0 ? 0 : here < count ? here : count;
    };
    const auto first_of = [&](int64_t row) { return inside(begin_of(args, first_row + row)); };
    const auto end_of = [&](int64_t row) { return inside(keys[row]); };
    const auto weigh = [&](auto together, int64_t row, int64_t from, int64_t to) {
      if (from >= to) return;
      const float* p = scores + row * kAttentionBlock + first + from;
      weigh_all<decltype(together)::kCount>(p, values + from * stride, to - from, stride, dim, o + row * dim);
    };
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) {
      const int64_t begin = first_of(row + 3), end = end_of(row);
      for (int64_t r = row; begin > 0 && r < row + 3; ++r)
        weigh(Together<1>{}, r, first_of(r), begin < end_of(r) ? begin : end_of(r));
      weigh(Together<4>{}, row, begin, end);
      const int64_t rest = begin < end ? end : begin;
      for (int64_t r = row + 1; r < row + 4; ++r) weigh(Together<1>{}, r, rest, end_of(r));
    }
    for (; row < rows; ++row) weigh(Together<1>{}, row, first_of(row), end_of(row));
  }
}

// Rows [row, row + rows) of an attention_block; softmax(mask, scores, begin, end, m, l) turns one row's scores into
// probabilities. False when the scores or outputs of row 0 of the block are not finite.
template <typename T, typename Softmax>
bool attend_tile(const AttentionBlockArgs& args, int64_t row, int64_t rows, Softmax softmax) {
  alignas(64) float scores[kMaxTileRows * kAttentionBlock];
  const int32_t* keys = args.keys + row;
  const int64_t dim = args.head_dim, begin = begin_of(args, row), first = begin / kTileKeys * kTileKeys;
  score_tile(args.q + row * dim, static_cast<const T*>(args.k), rows, first, keys[rows - 1], dim, scores);
  const bool finite_scores = row > 0 || are_finite(scores + begin, keys[0] - begin);
  for (int64_t r = 0; r < rows; ++r)
    softmax(args.mask, scores + r * kAttentionBlock, begin_of(args, row + r), keys[r], args.m + row + r,
            args.l + row + r);
  weigh_tile<T>(args, row, rows, first, scores);
  return finite_scores && (row > 0 || are_finite(args.o, dim));
}

}  // namespace
}  // namespace tcim_lite::cpu
