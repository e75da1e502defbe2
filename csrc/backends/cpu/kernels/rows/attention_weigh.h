// Values weighed by probabilities, as both paths of attention do it: some rows of queries share every load of a value.
#pragma once

#include "backends/cpu/kernels/vector/simd.h"

namespace tcim_lite::cpu {
namespace {

// o[r][0 .. 16 C) = fma(p[r][key], v[key][..], o) over keys [begin, end); the last vector has the lanes of `last`.
// Meanwhile fetch(key, C) fetches what is needed later.
template <int R, int C, typename T, typename Last, typename Fetch>
void weigh_vectors(const float* p, const T* v, int64_t stride, int64_t begin, int64_t end, int64_t dim, float* o,
                   Last last, const Fetch& fetch) {
  Vec sums[R][C];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C - 1; ++c) sums[r][c] = load(o + r * dim + kLanes * c);
    sums[r][C - 1] = load(o + r * dim + kLanes * (C - 1), last);
  }
  for (int64_t key = begin; key < end; ++key) {
    const T* row = v + key * stride;
    fetch(key, C);
    Vec weights[R];  // all of them first: AVX2 has a register for one value beside them
    for (int r = 0; r < R; ++r) weights[r] = broadcast(p[r * kAttentionBlock + key]);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const Vec values = c < C - 1 ? load(row + kLanes * c) : load(row + kLanes * c, last);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sums[r][c] = fma(weights[r], values, sums[r][c]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C - 1; ++c) store(o + r * dim + kLanes * c, sums[r][c]);
    store(o + r * dim + kLanes * (C - 1), sums[r][C - 1], last);
  }
}

// The same of all `dim` outputs, or of those from d on. fetch(first output, key, vectors).
template <int R, int C = (kSums / R < 8 ? kSums / R : 8), typename T, typename Fetch>
void weigh_values(const float* p, const T* v, int64_t stride, int64_t begin, int64_t end, int64_t dim, float* o,
                  const Fetch& fetch, int64_t d = 0) {
  const auto fetch_from = [&](int64_t key, int vectors) __attribute__((always_inline)) { fetch(d, key, vectors); };
  for (; d + kLanes * C <= dim; d += kLanes * C)
    weigh_vectors<R, C>(p, v + d, stride, begin, end, dim, o + d, Full{}, fetch_from);
  if constexpr (C > 1) return weigh_values<R, (C > 4 ? 4 : 1)>(p, v, stride, begin, end, dim, o, fetch, d);
  if (d < dim) weigh_vectors<R, 1>(p, v + d, stride, begin, end, dim, o + d, Tail(dim - d), fetch_from);
}

// weigh(Number, row, begin, end) for R rows that see keys [first(row), end(row)), both ascending: all at once from
// the last row's first key to the first row's end, and each row's other keys before and behind.
template <int R, typename First, typename End, typename Weigh>
void weigh_together(First first, End end, Weigh weigh) {
  const auto some = [&](auto together, int row, int64_t from, int64_t to) {
    if (from < to) weigh(together, row, from, to);
  };
  const int64_t begin = first(R - 1), common_end = end(0), rest = begin < common_end ? common_end : begin;
  for (int r = 0; r < R - 1 && first(0) < begin; ++r) some(Number<1>{}, r, first(r), begin < end(r) ? begin : end(r));
  some(Number<R>{}, 0, begin, common_end);
  for (int r = 1; r < R && rest < end(R - 1); ++r) some(Number<1>{}, r, rest, end(r));
}

}  // namespace
}  // namespace tcim_lite::cpu
