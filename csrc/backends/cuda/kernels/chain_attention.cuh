// Attention of one token as a phase of a chain. The rows of a KV head are split over blocks; each makes the queries it
// needs, the one that holds the new row makes and writes it, and the last to finish merges.
#pragma once

#include "backends/cuda/kernels/chain_weights.cuh"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda {

template <int Heads>
struct ChainAttentionShared {
  static constexpr int kDim = kChainHeadDim;
  float queries[Heads][kDim];
  __align__(16) __half fresh[2][kDim];
  float outputs[kChainWarps][Heads][kDim];
  float most[kChainWarps][Heads], sums[kChainWarps][Heads];
  int last;
};

// cos and sin of the token's position, of element lane and lane + 32.
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
__device__ __forceinline__ void make_chain_head(const __half* x, const float* norm, float epsilon,
                                                const Rotation& rotation, float (&v)[4]) {
  const int lane = threadIdx.x % 32;
  float weight[4] = {1, 1, 1, 1}, sum = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    v[j] = __half2float(__ldcg(x + lane + 32 * j));
    if (norm != nullptr) weight[j] = norm[lane + 32 * j];
    sum = fmaf(v[j], v[j], sum);
  }
  if (norm != nullptr) {
    const float inverse = 1.0f / sqrtf(warp_sum(sum) / float(kChainHeadDim) + epsilon);
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = rounded<__half>(v[j] * inverse * weight[j]);
  }
  if (!rotation.wanted) return;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const float x1 = v[j], x2 = v[j + 2];
    v[j] = rounded<__half>(fmaf(-x2, rotation.sin[j], x1 * rotation.cos[j]));
    v[j + 2] = rounded<__half>(fmaf(x1, rotation.sin[j], x2 * rotation.cos[j]));
  }
}

__device__ __forceinline__ float warp_most(float v) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, lane));
  return v;
}

// Merges what `active` blocks left for this KV head. Each warp has one head.
template <int Heads>
__device__ __forceinline__ void merge_splits(const float* all, int active, __half* y) {
  constexpr int kDim = kChainHeadDim, kStride = Heads * (kDim + 2), kAtOnce = 16;
  if (threadIdx.x >= Heads * kDim) return;
  const int lane = threadIdx.x % 32, h = threadIdx.x / kDim;
  const float* values = all + h * (kDim + 2) + threadIdx.x % kDim;
  const float* rests = all + h * (kDim + 2) + kDim;
  float most = -INFINITY, sum = 0, total = 0;
  for (int base = 0; base < active; base += kAtOnce) {
    const int split = base + lane;
    const bool mine = lane < kAtOnce && split < active;
    const float2 rest =
        mine ? __ldcg(reinterpret_cast<const float2*>(rests + split * kStride)) : make_float2(-INFINITY, 0);
    float value[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) value[i] = base + i < active ? __ldcg(values + (base + i) * kStride) : 0.0f;
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

// `ready` returns when q, k and v may be read.
template <int Heads, typename Ready>
__device__ __forceinline__ void attend(const ChainArgs& args, const ChainAttention& a, ChainAttentionShared<Heads>& s,
                                       const Rotation& rotation, int valid, const Ready& ready) {
  constexpr int kDim = kChainHeadDim, kUnroll = Heads == 2 ? 4 : 2;
  constexpr int kStep = 2 * kChainWarps;  // keys at a time: one for each half of a warp
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int splits = int(gridDim.x) / args.kv_heads;
  const int split = int(blockIdx.x) % splits, kv_head = int(blockIdx.x) / splits;
  const int keys = min(valid + 1, args.context);
  const int chunk = ((keys + splits - 1) / splits + 15) / 16 * 16;
  const int active = (keys + chunk - 1) / chunk;
  const int begin = split * chunk, end = min(begin + chunk, keys);
  if (kv_head >= args.kv_heads || begin >= end) return ready();
  const int64_t cache_at = int64_t(kv_head) * args.context * kDim;
  __half* k = static_cast<__half*>(a.k_cache) + cache_at;
  __half* v = static_cast<__half*>(a.v_cache) + cache_at;
  const bool owns_fresh = valid >= begin && valid < end;

  // Earlier tokens' rows do not wait.
  const int half = lane / 16, first = lane % 16 * 8;
  const int mine = begin + warp * 2 + half;
  uint4 raw_k[kUnroll], raw_v[kUnroll];
  const auto fetch_rows = [&](int base) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int key = base + u * kStep;
      raw_k[u] = raw_v[u] = make_uint4(0, 0, 0, 0);
      if (key >= end || key == valid) continue;
      raw_k[u] = *reinterpret_cast<const uint4*>(k + int64_t(key) * kDim + first);
      raw_v[u] = *reinterpret_cast<const uint4*>(v + int64_t(key) * kDim + first);
    }
  };
  fetch_rows(mine);
  for (int key = begin + kUnroll * kStep + int(threadIdx.x) / 4; key < end; key += kChainThreads / 4) {
    const __half* row = (threadIdx.x % 2 == 0 ? k : v) + int64_t(key) * kDim + threadIdx.x / 2 % 2 * 64;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(row));
  }
  ready();

  if (warp < Heads) {
    float values[4];
    make_chain_head(static_cast<const __half*>(a.q) + int64_t(kv_head * Heads + warp) * kDim, a.q_norm, a.q_epsilon,
                    rotation, values);
#pragma unroll
    for (int j = 0; j < 4; ++j) s.queries[warp][lane + 32 * j] = values[j] * a.scale;
  } else if (owns_fresh && warp < Heads + 2) {
    const bool is_key = warp == Heads;
    const Rotation rotated = is_key ? rotation : Rotation{};
    float values[4];
    make_chain_head(static_cast<const __half*>(is_key ? a.k : a.v) + int64_t(kv_head) * kDim,
                    is_key ? a.k_norm : nullptr, a.k_epsilon, rotated, values);
    const bool write = *args.current >= 1;
    __half* row = (is_key ? k : v) + int64_t(valid) * kDim;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const __half made = __float2half_rn(values[j]);
      s.fresh[is_key ? 0 : 1][lane + 32 * j] = made;
      if (write) row[lane + 32 * j] = made;
    }
  }
  __syncthreads();

  float q[Heads][8], o[Heads][8] = {}, m[Heads], l[Heads];
#pragma unroll
  for (int h = 0; h < Heads; ++h) {
    m[h] = -INFINITY;
    l[h] = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) q[h][i] = s.queries[h][first + i];
  }
  for (int base = mine; base - half < end; base += kStep * kUnroll) {
    if (base != mine) fetch_rows(base);
    float score[Heads][kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (base + u * kStep == valid && owns_fresh) {
        raw_k[u] = *reinterpret_cast<const uint4*>(&s.fresh[0][first]);
        raw_v[u] = *reinterpret_cast<const uint4*>(&s.fresh[1][first]);
      }
      float row[8];
      load8(reinterpret_cast<const __half*>(&raw_k[u]), row);
#pragma unroll
      for (int h = 0; h < Heads; ++h) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) sum = fmaf(q[h][i], row[i], sum);
        score[h][u] = sum;
      }
    }
#pragma unroll
    for (int step = 1; step < 16; step *= 2) {
#pragma unroll
      for (int h = 0; h < Heads; ++h) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) score[h][u] += __shfl_xor_sync(0xffffffffu, score[h][u], step);
      }
    }
#pragma unroll
    for (int h = 0; h < Heads; ++h) {
      float now = m[h];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (base + u * kStep >= end) score[h][u] = -INFINITY;
        now = fmaxf(now, score[h][u]);
      }
      now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 16));  // both halves go by one maximum
      const float keep = now == -INFINITY ? 1.0f : expf(m[h] - now);
      m[h] = now;
      l[h] *= keep;
#pragma unroll
      for (int i = 0; i < 8; ++i) o[h][i] *= keep;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        score[h][u] = now == -INFINITY ? 0.0f : expf(score[h][u] - now);
        l[h] += score[h][u];
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float row[8];
      load8(reinterpret_cast<const __half*>(&raw_v[u]), row);
#pragma unroll
      for (int h = 0; h < Heads; ++h) {
#pragma unroll
        for (int i = 0; i < 8; ++i) o[h][i] = fmaf(score[h][u], row[i], o[h][i]);
      }
    }
  }

  // The halves of a warp, then the warps.
#pragma unroll
  for (int h = 0; h < Heads; ++h) {
    l[h] += __shfl_xor_sync(0xffffffffu, l[h], 16);
    if (lane == 0) s.most[warp][h] = m[h], s.sums[warp][h] = l[h];
  }
#pragma unroll
  for (int turn = 0; turn < 2; ++turn) {
    if (half == turn) {
#pragma unroll
      for (int h = 0; h < Heads; ++h) {
        float4* at = reinterpret_cast<float4*>(&s.outputs[warp][h][first]);
        float4 low = make_float4(0, 0, 0, 0), high = low;
        if (turn == 1) low = at[0], high = at[1];
        at[0] = make_float4(low.x + o[h][0], low.y + o[h][1], low.z + o[h][2], low.w + o[h][3]);
        at[1] = make_float4(high.x + o[h][4], high.y + o[h][5], high.z + o[h][6], high.w + o[h][7]);
      }
    }
    __syncwarp();
  }
  __syncthreads();
  constexpr int kStride = Heads * (kDim + 2);
  float* all = args.partial + int64_t(kv_head) * splits * kStride;
  auto* y = static_cast<__half*>(a.y) + int64_t(kv_head) * Heads * kDim;
  if (threadIdx.x < Heads * kDim) {  // whole warps, of one head each
    const int h = threadIdx.x / kDim, d = threadIdx.x % kDim;
    const float own = lane < kChainWarps ? s.most[lane][h] : -INFINITY;
    const float most = warp_most(own);
    const float weight = expf(own - most);
    const float sum = warp_sum(lane < kChainWarps ? s.sums[lane][h] * weight : 0.0f);
    float total = 0;
#pragma unroll
    for (int w = 0; w < kChainWarps; ++w) total = fmaf(s.outputs[w][h][d], __shfl_sync(0xffffffffu, weight, w), total);
    if (active == 1) {
      store(y + threadIdx.x, total / sum);
    } else {
      float* at = all + split * kStride + h * (kDim + 2);
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
  if (s.last) merge_splits<Heads>(all, active, y);
}

}  // namespace tcim_lite::cuda
