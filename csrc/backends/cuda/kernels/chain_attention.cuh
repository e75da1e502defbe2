// Attention of one token as a phase of a chain. The rows of a KV head are split over blocks and their warps, 16 keys a
// warp on the tensor cores: the query heads of the KV head are rows of the A operand, keys the columns of B, and the
// scores become the A operand of the product with the values as they lie in registers. Each block makes the queries it
// needs, the one that holds the new row makes and writes it, and the last to finish merges.
#pragma once

#include "backends/cuda/kernels/chain_weights.cuh"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda {

constexpr int kMostChainHeads = 4;  // per KV head

struct ChainAttentionShared {
  static constexpr int kDim = kChainHeadDim;
  // A run of 16 elements takes 20 places, a head 4 more: what a warp writes at once falls into different banks.
  static constexpr int kHead = kDim / 16 * 20 + 4;
  __align__(16) __half queries[kMostChainHeads][kDim];
  __align__(16) __half fresh[2][kDim];  // key and value of the new row
  __align__(16) float outputs[kChainWarps][kMostChainHeads][kHead];
  float most[kChainWarps][kMostChainHeads], sums[kChainWarps][kMostChainHeads];
  int last;
};

// What a warp that makes heads needs of the token's position: cos and sin of elements lane and lane + 32.
struct Rotation {
  bool wanted;
  float cos[2], sin[2];
};

__device__ __forceinline__ Rotation load_rotation(const ChainArgs& args, int position) {
  Rotation r{args.cos != nullptr, {}, {}};
  if (!r.wanted) return r;
  const int64_t at = int64_t(min(position, args.table_rows - 1)) * (kChainHeadDim / 2) + threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    r.cos[j] = __half2float(static_cast<const __half*>(args.cos)[at + 32 * j]);
    r.sin[j] = __half2float(static_cast<const __half*>(args.sin)[at + 32 * j]);
  }
  return r;
}

// A head in a warp: lane holds elements lane + 32 j. Norm, then RoPE, each rounded.
__device__ __forceinline__ void make_chain_head(const __half* x, bool norm, const float (&weight)[4], float epsilon,
                                                bool rotate, const Rotation& rotation, __half* to) {
  const int lane = threadIdx.x % 32;
  float v[4], sum = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    v[j] = __half2float(__ldcg(x + lane + 32 * j));
    sum = fmaf(v[j], v[j], sum);
  }
  if (norm) {
    const float inverse = 1.0f / sqrtf(warp_sum(sum) / float(kChainHeadDim) + epsilon);
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = rounded<__half>(v[j] * inverse * weight[j]);
  }
  if (rotate) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float x1 = v[j], x2 = v[j + 2];
      v[j] = rounded<__half>(fmaf(-x2, rotation.sin[j], x1 * rotation.cos[j]));
      v[j + 2] = rounded<__half>(fmaf(x1, rotation.sin[j], x2 * rotation.cos[j]));
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) to[lane + 32 * j] = __float2half_rn(v[j]);
}

__device__ __forceinline__ float warp_most(float v) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, lane));
  return v;
}

// Merges what `active` blocks left for this KV head. Each warp has one head.
__device__ __forceinline__ void merge_splits(const float* all, int heads, int active, __half* y) {
  constexpr int kDim = kChainHeadDim, kAtOnce = 16;
  if (int(threadIdx.x) >= heads * kDim) return;
  const int lane = threadIdx.x % 32, h = threadIdx.x / kDim, stride = heads * (kDim + 2);
  const float* values = all + h * (kDim + 2) + threadIdx.x % kDim;
  const float* rests = all + h * (kDim + 2) + kDim;
  float most = -INFINITY, sum = 0, total = 0;
  for (int base = 0; base < active; base += kAtOnce) {
    const int split = base + lane;
    const bool mine = lane < kAtOnce && split < active;
    const float2 rest =
        mine ? __ldcg(reinterpret_cast<const float2*>(rests + split * stride)) : make_float2(-INFINITY, 0);
    float value[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) value[i] = base + i < active ? __ldcg(values + (base + i) * stride) : 0.0f;
    const float now = fmaxf(most, warp_most(rest.x));
    const float weight = expf(rest.x - now), keep = expf(most - now);
    most = now;
    sum = fmaf(sum, keep, warp_sum(rest.y * weight));
    total *= keep;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) total = fmaf(value[i], __shfl_sync(0xffffffffu, weight, i), total);
  }
  store(y + threadIdx.x, total / sum);
}

// 16 keys in a warp's registers. Lane 4 g + t holds of keys 4 (g / 2) + g % 2 + 2 u the elements 32 i + 8 t .., and of
// keys 4 t + i the value's elements 16 g .. : operands B of both products, keys and elements in an order of their own.
struct KeyTile {
  uint4 k[2][4];
  uint4 v[4][2];
};

__device__ __forceinline__ int key_of_column(int lane, int u) { return lane / 8 * 4 + lane / 4 % 2 + 2 * u; }

// Rows from `end` on become zero: nobody wrote them, and 0 * NaN is NaN.
__device__ __forceinline__ void load_keys(KeyTile& tile, const __half* k, int first, int end, int fresh) {
  const int lane = threadIdx.x % 32, t = lane % 4;
#pragma unroll
  for (int u = 0; u < 2; ++u) {
    const int key = first + key_of_column(lane, u);
    const uint4* row = reinterpret_cast<const uint4*>(k + int64_t(key) * kChainHeadDim);
#pragma unroll
    for (int i = 0; i < 4; ++i) tile.k[u][i] = key < end && key != fresh ? row[4 * i + t] : make_uint4(0, 0, 0, 0);
  }
}
__device__ __forceinline__ void load_values(KeyTile& tile, const __half* v, int first, int end, int fresh) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int key = first + 4 * t + i;
    const uint4* row = reinterpret_cast<const uint4*>(v + int64_t(key) * kChainHeadDim);
#pragma unroll
    for (int j = 0; j < 2; ++j) tile.v[i][j] = key < end && key != fresh ? row[2 * g + j] : make_uint4(0, 0, 0, 0);
  }
}

__device__ __forceinline__ void insert_fresh(KeyTile& tile, const ChainAttentionShared& s, int first, int fresh) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int u = 0; u < 2; ++u) {
    if (first + key_of_column(lane, u) != fresh) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) tile.k[u][i] = reinterpret_cast<const uint4*>(s.fresh[0])[4 * i + t];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + 4 * t + i != fresh) continue;
#pragma unroll
    for (int j = 0; j < 2; ++j) tile.v[i][j] = reinterpret_cast<const uint4*>(s.fresh[1])[2 * g + j];
  }
}

__device__ __forceinline__ uint32_t pack_two(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}

// Scores of the tile's keys with the queries in shared memory: score[u][i] is head g's with key 4 t + 2 u + i.
__device__ __forceinline__ void score_tile(float (&score)[2][4], const KeyTile& tile, const ChainAttentionShared& s,
                                           int heads) {
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
__device__ __forceinline__ void attend_tile(const KeyTile& tile, ChainAttentionShared& s, int heads, float scale,
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
      score[u][i] = first + 4 * t + 2 * u + i < end ? score[u][i] * scale : -INFINITY;
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

// `ready` returns when q, k and v may be read.
template <typename Ready>
__device__ __forceinline__ void attend(const ChainArgs& args, const ChainAttention& a, ChainAttentionShared& s,
                                       const Rotation& rotation, int valid, bool writes, const Ready& ready) {
  constexpr int kDim = kChainHeadDim;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, heads = args.heads_per_kv;
  const int splits = args.splits;
  const int kv_head = int(blockIdx.x) / splits, split = int(blockIdx.x) - kv_head * splits;
  const int keys = min(valid + 1, args.context);
  const int chunk = ((keys + splits - 1) / splits + 15) / 16 * 16;
  const int active = (keys + chunk - 1) / chunk;
  const int begin = split * chunk, end = min(begin + chunk, keys);
  if (kv_head >= args.kv_heads || begin >= end) return ready();
  const int64_t cache_at = int64_t(kv_head) * args.context * kDim;
  __half* k = static_cast<__half*>(a.k_cache) + cache_at;
  __half* v = static_cast<__half*>(a.v_cache) + cache_at;
  const int fresh = valid < end ? valid : -1;  // the new row, where this block holds it

  // Earlier tokens' rows and the norms' weights do not wait; values come by way of the L2, for want of registers.
  const int mine = begin + warp * 16;
  KeyTile tile;
  load_keys(tile, k, mine, end, fresh);
  if (mine + lane / 2 < end)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(v + int64_t(mine + lane / 2) * kDim + lane % 2 * 64));
  const bool makes_key = warp == heads, makes_value = warp == heads + 1;
  const float* norm = warp < heads ? a.q_norm : makes_key ? a.k_norm : nullptr;
  float weight[4] = {};
#pragma unroll
  for (int j = 0; j < 4; ++j) weight[j] = norm == nullptr ? 0.0f : norm[lane + 32 * j];
  ready();
  load_values(tile, v, mine, end, fresh);

  if (warp < heads) {
    make_chain_head(static_cast<const __half*>(a.q) + int64_t(kv_head * heads + warp) * kDim, norm != nullptr, weight,
                    a.q_epsilon, rotation.wanted, rotation, s.queries[warp]);
  } else if (fresh >= 0 && (makes_key || makes_value)) {
    __half* made = s.fresh[makes_value];
    make_chain_head(static_cast<const __half*>(makes_key ? a.k : a.v) + int64_t(kv_head) * kDim, norm != nullptr,
                    weight, a.k_epsilon, rotation.wanted && makes_key, rotation, made);
    __half* row = (makes_key ? k : v) + int64_t(fresh) * kDim;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (writes) row[lane + 32 * j] = made[lane + 32 * j];
    }
  }
  __syncthreads();

  const int warps = min((end - begin + 15) / 16, kChainWarps);  // that have keys
  if (warp < warps) {
    for (int first = mine;;) {
      insert_fresh(tile, s, first, fresh);
      attend_tile(tile, s, heads, a.scale, first, end, first == mine);
      first += 16 * kChainWarps;
      if (first >= end) break;
      load_keys(tile, k, first, end, fresh);
      load_values(tile, v, first, end, fresh);
      __syncwarp();  // what the round before left in shared memory
    }
  }
  __syncthreads();

  const int stride = heads * (kDim + 2);
  float* all = args.partial + int64_t(kv_head) * splits * stride;
  auto* y = static_cast<__half*>(a.y) + int64_t(kv_head) * heads * kDim;
  if (int(threadIdx.x) < heads * kDim) {  // whole warps, of one head each
    const int h = threadIdx.x / kDim, d = threadIdx.x % kDim;
    const float own = lane < warps ? s.most[lane][h] : -INFINITY;
    const float most = warp_most(own);
    const float share = expf(own - most);
    const float sum = warp_sum(lane < warps ? s.sums[lane][h] * share : 0.0f);
    float total = 0;
    for (int w = 0; w < warps; ++w)
      total = fmaf(s.outputs[w][h][d / 16 * 20 + d % 16], __shfl_sync(0xffffffffu, share, w), total);
    if (active == 1) {
      store(y + threadIdx.x, total / sum);
    } else {
      float* at = all + split * stride + h * (kDim + 2);
      at[d] = total;
      if (d == 0) *reinterpret_cast<float2*>(at + kDim) = make_float2(most, sum);
    }
  }
  if (active == 1) return;
  __syncthreads();
  if (threadIdx.x == 0) {
    int before;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(args.arrived + kv_head)
                 : "memory");
    s.last = before == active - 1;
    if (s.last) args.arrived[kv_head] = 0;
  }
  __syncthreads();
  if (s.last) merge_splits(all, heads, active, y);
}

}  // namespace tcim_lite::cuda
