// Attention over one block of keys, and how blocks are merged and ended. With few rows a key has 16 elements of a head
// in its lanes; many take attention_tile.h.
#include "backends/cpu/kernels/rows/attention_weigh.h"
#include "backends/cpu/kernels/vector/functions_simd.h"

#ifdef __AVX2__
#define TCIM_LITE_ATTENTION_TILES
#include "backends/cpu/kernels/rows/attention_tile.h"
#endif

namespace tcim_lite::cpu {
namespace {

// Few rows are bound by the stream of K and V, so it is fetched ahead: into the second cache, then into the first
// (benchmarks/notes/log/cpu-kernels.md). The fetches are spread over the arithmetic, because in bursts they gain
// nothing.
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
    prefetch_near(near + bytes);
    prefetch_far(far + bytes);
  }
};

// scores[r][key] = q[r] . k[key] for R rows and kSums / R keys; keys beyond `last` repeat it and are not used. After
// the keys, `v` is read. The zeros beyond a tail may turn a partial sum of -0 into +0, which no probability and no
// maximum shows.
template <int R, typename T>
void score_keys(const float* q, const T* k, const T* v, int64_t key, int64_t last, int64_t dim, float* scores) {
  constexpr int kKeys = kSums / R;
  const T* rows[kKeys];
  for (int j = 0; j < kKeys; ++j) rows[j] = k + (key + j < last ? key + j : last) * dim;
  constexpr auto kSize = int64_t(sizeof(T));
  const Ahead ahead(k, key * dim * kSize, (last + 1) * dim * kSize, v);
  Vec sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = broadcast(0.0f);
  for_lanes(dim, [&](int64_t d, auto lanes) {
    Vec query[R];
    for (int r = 0; r < R; ++r) query[r] = load(q + r * dim + d, lanes);
    for (int64_t line = 0; line < kKeys * kSize / 4; ++line) ahead.fetch((d * kKeys * kSize / 64 + line) * 64);
#pragma GCC unroll 16
    for (int j = 0; j < kKeys; ++j) {
      const Vec values = load(rows[j] + d, lanes);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sums[r * kKeys + j] = fma(query[r], values, sums[r * kKeys + j]);
    }
  });
  alignas(64) float all[kSums];
  tree_sums(sums, all);
  for (int r = 0; r < R; ++r) {
    __builtin_memcpy(scores + r * kAttentionBlock + key, all + r * kKeys, kKeys * sizeof(float));
  }
}

// Turns the scores of keys [begin, end) of one row into probabilities. Other keys in the same 16 lanes get exp(-inf -
// m) = 0, which changes no sum.
void softmax(float* scores, int64_t begin, int64_t end, float* m, float* l) {
  const int64_t first = begin / kLanes * kLanes, keys = end - first;  // the 16 sums go by the number of the key
  scores += first;
  for (int64_t key = 0; key < begin - first; ++key) scores[key] = -__builtin_inff();
  const Vec lowest = broadcast(-__builtin_inff());
  Vec high = lowest;
  for_lanes(keys, [&](int64_t i, auto lanes) { high = max(first_lanes(load(scores + i), lowest, lanes), high); });
  *m = largest(high) + 0.0f;  // -0 becomes +0: which zero a maximum picks depends on the order
  const Vec shift = broadcast(*m);
  Vec sums = broadcast(0.0f);
  for_lanes(keys, [&](int64_t i, auto lanes) {
    const Vec p = exp(first_lanes(load(scores + i), lowest, lanes) - shift);
    store(scores + i, p);
    sums = sums + p;
  });
  *l = tree_sum(sums);
}

// As softmax(), of scores that are capped, and then have the mask added.
void masked_softmax(const AttentionBlockArgs& args, float* scores, int64_t begin, int64_t end, float* m, float* l) {
  if (args.softcap > 0) {
    const Vec cap = broadcast(args.softcap);
    for_lanes(end - begin, [&](int64_t i, auto lanes) {
      store(scores + begin + i, cap * tanh(load(scores + begin + i, lanes)), lanes);
    });
  }
  if (args.mask != nullptr)
    for_lanes(end - begin, [&](int64_t i, auto lanes) {
      store(scores + begin + i, load(scores + begin + i, lanes) + load(args.mask + begin + i, lanes), lanes);
    });
  softmax(scores, begin, end, m, l);
}

// R rows share every load of K, and of V where all see it. False when the scores or outputs of row 0 of the block are
// not finite.
template <int R, typename T>
bool attend(const AttentionBlockArgs& args, int64_t row) {
  float* scores = args.scores;
  const int64_t dim = args.head_dim;
  const float* q = args.q + row * dim;
  const T* k = static_cast<const T*>(args.k);
  const T* v = static_cast<const T*>(args.v);
  const T* next = args.next != nullptr ? static_cast<const T*>(args.next) : k + kAttentionBlock * dim;
  float* o = args.o + row * dim;
  const int32_t* keys = args.keys + row;
  const int64_t most = keys[R - 1], first = begin_of(args, row);
  for (int64_t key = first / kLanes * kLanes; key < most; key += kSums / R)
    score_keys<R>(q, k, v, key, most - 1, dim, scores);
  const bool finite_scores = row > 0 || are_finite(scores + first, keys[0] - first);
  for (int r = 0; r < R; ++r) {
    masked_softmax(args, scores + r * kAttentionBlock, begin_of(args, row + r), keys[r], args.m + row + r,
                   args.l + row + r);
  }
  for_lanes(R * dim, [&](int64_t d, auto lanes) { store(o + d, broadcast(0.0f), lanes); });
  const auto weigh = [&](auto together, int r, int64_t from, int64_t to) {
    constexpr auto kSize = int64_t(sizeof(T));
    const auto fetch = [=](int64_t d, int64_t key, int vectors) __attribute__((always_inline)) {
      const Ahead ahead(v + d, key * dim * kSize, to * dim * kSize, next + d);
      for (int64_t at = 0; at < kLanes * vectors * kSize; at += 64) ahead.fetch(at);
    };
    weigh_values<decltype(together)::value>(scores + r * kAttentionBlock, v, dim, from, to, dim, o + r * dim, fetch);
  };
  weigh_together<R>([&](int r) { return begin_of(args, row + r); }, [&](int r) { return int64_t{keys[r]}; }, weigh);
  return finite_scores && (row > 0 || are_finite(o, dim));
}

template <typename T>
bool attention_block(const AttentionBlockArgs& args) {
  int64_t row = 0;
  bool finite = true;
#ifdef TCIM_LITE_ATTENTION_TILES
  if (args.head_dim <= kMaxTileHeadDim) {
    while (args.rows - row >= kMinTileRows) {
      const int64_t rows = args.rows - row < kMaxTileRows ? args.rows - row : kMaxTileRows;
      finite &= attend_tile<T>(args, row, rows, masked_softmax);
      row += rows;
    }
  }
#endif
  for (; row + 4 <= args.rows; row += 4) finite &= attend<4, T>(args, row);
  for (; row + 2 <= args.rows; row += 2) finite &= attend<2, T>(args, row);
  for (; row < args.rows; ++row) finite &= attend<1, T>(args, row);
  return finite;
}

void attention_merge(const AttentionMergeArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float m = args.m[row] > args.running_m[row] ? args.m[row] : args.running_m[row];
    const Vec keep = exp(broadcast(args.running_m[row] - m)), take = exp(broadcast(args.m[row] - m));
    args.running_m[row] = m;
    args.running_l[row] = __builtin_fmaf(args.running_l[row], first_lane(keep), args.l[row] * first_lane(take));
    float* running_o = args.running_o + row * args.head_dim;
    const float* o = args.o + row * args.head_dim;
    for_lanes(args.head_dim, [&](int64_t d, auto lanes) {
      store(running_o + d, fma(load(running_o + d, lanes), keep, load(o + d, lanes) * take), lanes);
    });
  }
}

template <typename T>
void attention_finish(const AttentionFinishArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* o = args.o + row * args.head_dim;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    const Vec l = broadcast(args.l[row]);
    for_lanes(args.head_dim, [&](int64_t d, auto lanes) { store(y + d, load(o + d, lanes) / l, lanes); });
  }
}

}  // namespace

void TCIM_LITE_USE(attention)(KernelTable& table) {
  enter(table.attention_block, attention_block<uint16_t>, attention_block<float>);
  enter(table.attention_finish, attention_finish<uint16_t>, attention_finish<float>);
  table.attention_merge = attention_merge;
}

}  // namespace tcim_lite::cpu
