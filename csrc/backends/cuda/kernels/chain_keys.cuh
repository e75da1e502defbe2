// Sixteen keys and values in a warp's registers, and their part in a chain's attention on the tensor cores: the query
// heads of a KV head are rows of the A operand, keys the columns of B, and the scores become the A operand of the
// product with the values as they lie.
#pragma once

#include "backends/cuda/kernels/chain_weights.cuh"
#include "backends/cuda/kernels/common.cuh"

namespace tcim_lite::cuda {

constexpr int kMostChainHeads = 4;  // per KV head

template <typename Shape>
struct ChainAttentionShared {
  static constexpr int kDim = kChainHeadDim;
  // A run of 16 elements takes 20 places, a head 4 more: what a warp writes at once falls into different banks.
  static constexpr int kHead = kDim / 16 * 20 + 4;
  __align__(16) __half queries[kMostChainHeads][kDim];
  // Of this run.
  __align__(16) __half fresh_keys[kMostChainRows][kDim], fresh_values[kMostChainRows][kDim];
  __align__(16) float outputs[Shape::kWarps][kMostChainHeads][kHead];
  float most[Shape::kWarps][kMostChainHeads], sums[Shape::kWarps][kMostChainHeads];
  int last;
};

// Where keys and values up to `end` are: in the caches, from `fresh` on in shared memory.
struct ChainKeys {
  __half *k, *v;
  int fresh, end;
};

// Lane 4 g + t holds of keys 4 (g / 2) + g % 2 + 2 u the elements 32 i + 8 t .., and of keys 4 t + i the value's
// elements 16 g .. : operands B of both products, keys and elements in an order of their own.
struct KeyTile {
  uint4 k[2][4];
  uint4 v[4][2];
};

__device__ __forceinline__ int key_of_column(int lane, int u) { return lane / 8 * 4 + lane / 4 % 2 + 2 * u; }

// What was in the caches before. Other rows are zero: nobody wrote them, and 0 * NaN is NaN.
__device__ __forceinline__ void load_keys(KeyTile& tile, const ChainKeys& keys, int first) {
  const int lane = threadIdx.x % 32, t = lane % 4, end = min(keys.fresh, keys.end);
#pragma unroll
  for (int u = 0; u < 2; ++u) {
    const int key = first + key_of_column(lane, u);
    const uint4* row = reinterpret_cast<const uint4*>(keys.k + int64_t(key) * kChainHeadDim);
#pragma unroll
    for (int i = 0; i < 4; ++i) tile.k[u][i] = key < end ? __ldcg(row + 4 * i + t) : make_uint4(0, 0, 0, 0);
  }
}
template <typename Shape>
__device__ __forceinline__ void insert_fresh(KeyTile& tile, const ChainKeys& keys, const ChainAttentionShared<Shape>& s,
                                             int first) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  if (first + 16 <= keys.fresh) return;
#pragma unroll
  for (int u = 0; u < 2; ++u) {
    const int key = first + key_of_column(lane, u);
    if (key < keys.fresh || key >= keys.end) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      tile.k[u][i] = reinterpret_cast<const uint4*>(s.fresh_keys[key - keys.fresh])[4 * i + t];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = first + 4 * t + i;
    if (key < keys.fresh || key >= keys.end) continue;
#pragma unroll
    for (int j = 0; j < 2; ++j)
      tile.v[i][j] = reinterpret_cast<const uint4*>(s.fresh_values[key - keys.fresh])[2 * g + j];
  }
}
__device__ __forceinline__ void load_values(KeyTile& tile, const ChainKeys& keys, int first) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, end = min(keys.fresh, keys.end);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = first + 4 * t + i;
    const uint4* row = reinterpret_cast<const uint4*>(keys.v + int64_t(key) * kChainHeadDim);
#pragma unroll
    for (int j = 0; j < 2; ++j) tile.v[i][j] = key < end ? __ldcg(row + 2 * g + j) : make_uint4(0, 0, 0, 0);
  }
}
// Half a row by each lane.
__device__ __forceinline__ void prefetch_rows(const __half* rows, const ChainKeys& keys, int first) {
  const int lane = threadIdx.x % 32, key = first + lane / 2;
  if (key >= min(keys.fresh, keys.end)) return;
  asm volatile("prefetch.global.L2 [%0];" ::"l"(rows + int64_t(key) * kChainHeadDim + lane % 2 * 64));
}

__device__ __forceinline__ uint32_t pack_two(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}

// Scores of the tile's keys with the queries in shared memory: score[u][i] is head g's with key 4 t + 2 u + i.
template <typename Shape>
__device__ __forceinline__ void score_tile(float (&score)[2][4], const KeyTile& tile,
                                           const ChainAttentionShared<Shape>& s, int heads) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint4 q = make_uint4(0, 0, 0, 0);
    if (g < heads) q = reinterpret_cast<const uint4*>(s.queries[g])[4 * i + t];
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      mma_half(score[u], q.x, 0, q.y, 0, tile.k[u][i].x, tile.k[u][i].y);
      mma_half(score[u], q.z, 0, q.w, 0, tile.k[u][i].z, tile.k[u][i].w);
    }
  }
}

// The tile's part of a warp's (most, sum, outputs) in shared memory; `first_round`: there is nothing yet. Lane 4 g + t
// has head g, elements 16 (2 t + i) + d.
template <typename Shape>
__device__ __forceinline__ void attend_tile(const KeyTile& tile, ChainAttentionShared<Shape>& s, int heads, float scale,
                                            int first, int end, bool first_round) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float score[2][4] = {};
  score_tile(score, tile, s, heads);
  const bool has_before = !first_round && g < heads;
  const float before = has_before ? s.most[warp][g] : -INFINITY;
  float most = before, sum = 0;
#pragma unroll
  for (int u = 0; u < 2; ++u) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // Rounded: in an FMA with what is taken off below, the error of a large product would be raised to a power.
      score[u][i] = first + 4 * t + 2 * u + i < end ? __fmul_rn(score[u][i], scale) : -INFINITY;
      most = fmaxf(most, score[u][i]);
    }
  }
  most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
  most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
#pragma unroll
  for (int u = 0; u < 2; ++u) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      score[u][i] = expf(score[u][i] - most);
      sum += score[u][i];
    }
  }
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  const float keep = expf(before - most);
  if (has_before) sum = fmaf(s.sums[warp][g], keep, sum);
  __syncwarp();
  if (g < heads && t == 0) s.most[warp][g] = most, s.sums[warp][g] = sum;

  const uint32_t p0 = pack_two(score[0][0], score[0][1]), p1 = pack_two(score[1][0], score[1][1]);
  float* outputs = &s.outputs[warp][g < heads ? g : 0][2 * t * 20];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // four elements d
      float o[4][4] = {};
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        const auto word = [&](int i) {
          const uint4& v = tile.v[i][j];
          return half == 0 ? (d < 2 ? v.x : v.y) : (d < 2 ? v.z : v.w);
        };
        const uint32_t pick = d % 2 ? 0x7632 : 0x5410;  // the element of two keys
        mma_half(o[d], p0, 0, p1, 0, __byte_perm(word(0), word(1), pick), __byte_perm(word(2), word(3), pick));
      }
      if (g >= heads) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float4* to = reinterpret_cast<float4*>(outputs + i * 20) + j * 2 + half;
        float4 old = make_float4(0, 0, 0, 0);
        if (has_before) old = *to;
        *to = make_float4(fmaf(old.x, keep, o[0][i]), fmaf(old.y, keep, o[1][i]), fmaf(old.z, keep, o[2][i]),
                          fmaf(old.w, keep, o[3][i]));
      }
    }
  }
}

}  // namespace tcim_lite::cuda
