// Attention of many query rows over one block of keys. K and V are turned into fp32 once for all rows, some keys at a
// time, where the first cache holds them. Scores have keys in their lanes, so the 16 partial sums of a dot product
// (docs/numerics.md section 6) are 16 vectors, one after the other, and their tree needs no shuffles.
#pragma once

#include "backends/cpu/kernels/rows/attention_weigh.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kMaxTileRows = 128;
constexpr int64_t kMaxTileHeadDim = 256;  // elements; wider heads take the path for few rows
constexpr int64_t kTileValues = 32;       // keys whose values are widened at a time

// What the registers hold as sums beside operands: rows by vectors of keys. And the fewest rows that gain by it.
#ifdef __AVX512F__
constexpr int64_t kMinTileRows = 16;
constexpr int kKeyVecs = 2, kScoreRows = 4;
#else
constexpr int64_t kMinTileRows = 32;
constexpr int kKeyVecs = 1, kScoreRows = 4;
#endif
constexpr int64_t kTileKeys = kKeyVecs * kLanes;  // whose scores are computed at a time

// columns[d][i] = k[i][d] for kTileKeys keys; keys beyond the last repeat it.
template <typename T>
void key_columns(const T* k, int64_t keys, int64_t dim, float* columns) {
  for (int64_t first = 0; first < kTileKeys; first += kLanes) {
    const auto key_of = [=](int64_t i) { return k + (first + i < keys ? first + i : keys - 1) * dim; };
    turn_rows(kLanes, dim, key_of, columns + first, kTileKeys);
  }
}

// Partial sums of R rows by N vectors of keys.
template <int R, int N>
struct Sums {
  Vec v[R][N];
};

// Adds the products of column d to a partial sum.
template <int R, int N>
inline __attribute__((always_inline)) void add_column(const float* q, const float* columns, int64_t d, int64_t dim,
                                                      Sums<R, N>& sums) {
  Vec keys[N];
#pragma GCC unroll 2
  for (int n = 0; n < N; ++n) keys[n] = load(columns + d * kTileKeys + n * kLanes);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const Vec query = broadcast(q[r * dim + d]);
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) sums.v[r][n] = fma(query, keys[n], sums.v[r][n]);
  }
}

template <int R, int N>
inline __attribute__((always_inline)) Sums<R, N> no_sums() {
  Sums<R, N> sums;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) sums.v[r][n] = broadcast(0.0f);
  }
  return sums;
}

template <int R, int N>
inline __attribute__((always_inline)) void add_sums(Sums<R, N>& sums, const Sums<R, N>& other) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) sums.v[r][n] = sums.v[r][n] + other.v[r][n];
  }
}

// The sum of partial sums First, First + Step, First + 2 Step, ...: the tree of numerics.md, i with i + 8 first. With
// registers enough those two are summed side by side: half as many sums wait for others, in memory, as if each were by
// itself.
template <int R, int N, int First, int Step>
inline __attribute__((always_inline)) Sums<R, N> partial_sums(const float* q, const float* columns, int64_t dim) {
  if constexpr (Step == 16) {
    Sums<R, N> sums = no_sums<R, N>();
    for (int64_t d = First; d < dim; d += 16) add_column(q, columns, d, dim, sums);
    return sums;
  } else if constexpr (Step == 8 && kSums == 16) {
    Sums<R, N> sums = no_sums<R, N>(), other = sums;
    int64_t d = First;
    for (; d + 8 < dim; d += 16) {
      add_column(q, columns, d, dim, sums);
      add_column(q, columns, d + 8, dim, other);
    }
    if (d < dim) add_column(q, columns, d, dim, sums);
    add_sums(sums, other);
    return sums;
  } else {
    Sums<R, N> sums = partial_sums<R, N, First, 2 * Step>(q, columns, dim);
    add_sums(sums, partial_sums<R, N, First + Step, 2 * Step>(q, columns, dim));
    return sums;
  }
}

template <int R, int N>
void score_rows(const float* q, const float* columns, int64_t dim, float* scores) {
  const Sums<R, N> sums = partial_sums<R, N, 0, 1>(q, columns, dim);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) store(scores + r * kAttentionBlock + n * kLanes, sums.v[r][n]);
  }
}

// scores[r * kAttentionBlock + key] = q[r] . k[key] of the keys from `first` on that row r sees, and of others.
template <typename T>
void score_tile(const AttentionBlockArgs& args, int64_t first_row, int64_t rows, int64_t first, float* scores) {
  alignas(64) float columns[kMaxTileHeadDim * kTileKeys];
  const int64_t dim = args.head_dim;
  const float* q = args.q + first_row * dim;
  const T* k = static_cast<const T*>(args.k);
  const int32_t* keys = args.keys + first_row;
  const int64_t most = keys[rows - 1];
  for (int64_t key = first; key < most; key += kTileKeys) {
    key_columns(k + key * dim, most - key, dim, columns);
    float* out = scores + key;
    int64_t row = 0, end = rows;
    while (row + kScoreRows <= end && keys[row + kScoreRows - 1] <= key) row += kScoreRows;
    while (row < end && begin_of(args, first_row + end - 1) >= key + kTileKeys) --end;
    for (; row + kScoreRows <= end; row += kScoreRows) {
      const bool half = kKeyVecs > 1 && keys[row + kScoreRows - 1] <= key + kLanes;
      const auto score = half ? score_rows<kScoreRows, 1> : score_rows<kScoreRows, kKeyVecs>;
      score(q + row * dim, columns, dim, out + row * kAttentionBlock);
    }
    for (; row + 2 <= end; row += 2) score_rows<2, kKeyVecs>(q + row * dim, columns, dim, out + row * kAttentionBlock);
    if (row < end) score_rows<1, kKeyVecs>(q + row * dim, columns, dim, out + row * kAttentionBlock);
  }
}

// o[r] = sum over keys of scores[r * kAttentionBlock + key] * v[key], keys ascending, of the keys that a row sees.
template <typename T>
void weigh_tile(const AttentionBlockArgs& args, int64_t first_row, int64_t rows, int64_t first_key,
                const float* scores) {
  alignas(64) float values[kTileValues * kMaxTileHeadDim];
  const T* v = static_cast<const T*>(args.v);
  const int32_t* keys = args.keys + first_row;
  const int64_t dim = args.head_dim;
  float* o = args.o + first_row * dim;
  const int64_t stride = (dim + kLanes - 1) / kLanes * kLanes;
  for_lanes(rows * dim, [&](int64_t d, auto lanes) { store(o + d, broadcast(0.0f), lanes); });
  const int64_t most = keys[rows - 1];
  for (int64_t first = first_key; first < most; first += kTileValues) {
    const int64_t count = most - first < kTileValues ? most - first : kTileValues;
    for (int64_t key = 0; key < count; ++key) {
      for_lanes(dim, [&](int64_t d, auto lanes) {
        store(values + key * stride + d, load(v + (first + key) * dim + d, lanes));
      });
    }
    const auto inside = [&](int64_t key) {
      const int64_t here = key - first;
      return here < 0 ? 0 : here < count ? here : count;
    };
    int64_t row = 0;
    const auto first_of = [&](int r) { return inside(begin_of(args, first_row + row + r)); };
    const auto end_of = [&](int r) { return inside(keys[row + r]); };
    const auto weigh = [&](auto together, int r, int64_t from, int64_t to) {
      weigh_values<decltype(together)::value>(scores + (row + r) * kAttentionBlock + first, values, stride, from, to,
                                              dim, o + (row + r) * dim, [](int64_t, int64_t, int) {});
    };
    for (; row + 4 <= rows; row += 4) weigh_together<4>(first_of, end_of, weigh);
    for (; row < rows; ++row) weigh_together<1>(first_of, end_of, weigh);
  }
}

// Rows [row, row + rows) of an attention_block; softmax(args, scores, begin, end, m, l) turns one row's scores into
// probabilities. False when the scores or outputs of row 0 of the block are not finite.
template <typename T, typename Softmax>
bool attend_tile(const AttentionBlockArgs& args, int64_t row, int64_t rows, Softmax softmax) {
  float* scores = args.scores;
  const int32_t* keys = args.keys + row;
  const int64_t dim = args.head_dim, begin = begin_of(args, row), first = begin / kTileValues * kTileValues;
  score_tile<T>(args, row, rows, first, scores);
  const bool finite_scores = row > 0 || are_finite(scores + begin, keys[0] - begin);
  for (int64_t r = 0; r < rows; ++r)
    softmax(args, scores + r * kAttentionBlock, begin_of(args, row + r), keys[r], args.m + row + r, args.l + row + r);
  weigh_tile<T>(args, row, rows, first, scores);
  return finite_scores && (row > 0 || are_finite(args.o, dim));
}

}  // namespace
}  // namespace tcim_lite::cpu
