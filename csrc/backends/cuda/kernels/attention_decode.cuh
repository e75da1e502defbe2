// What a block does in attention of one token a slot (attention_decode.cu), step by step.
#pragma once

#include "backends/cuda/kernels/common.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda::decode_attention {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kUnroll = 4;  // keys in flight for each part of a warp

struct Rotation {
  const __half *cos, *sin;  // null: none
  int position;
};

// A head in a warp: lane holds elements lane + 32 j. Norm, then RoPE, each rounded.
template <int Dim>
__device__ __forceinline__ void make_head(const __half* x, const float* norm, float epsilon, const Rotation& rotation,
                                          int lane, float (&v)[Dim / 32]) {
  constexpr int kHalf = Dim / 64;
  float sum = 0;
#pragma unroll
  for (int j = 0; j < Dim / 32; ++j) {
    v[j] = load(x + lane + 32 * j);
    sum = fmaf(v[j], v[j], sum);
  }
  if (norm != nullptr) {
    const float inverse = 1.0f / sqrtf(warp_sum(sum) / float(Dim) + epsilon);
#pragma unroll
    for (int j = 0; j < Dim / 32; ++j) v[j] = rounded<__half>(v[j] * inverse * norm[lane + 32 * j]);
  }
  if (rotation.cos == nullptr) return;
#pragma unroll
  for (int j = 0; j < kHalf; ++j) {
    const float c = load(rotation.cos + int64_t(rotation.position) * (Dim / 2) + lane + 32 * j);
    const float s = load(rotation.sin + int64_t(rotation.position) * (Dim / 2) + lane + 32 * j);
    const float x1 = v[j], x2 = v[j + kHalf];
    v[j] = rounded<__half>(fmaf(-x2, s, x1 * c));
    v[j + kHalf] = rounded<__half>(fmaf(x1, s, x2 * c));
  }
}

__device__ __forceinline__ float warp_most(float v) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, lane));
  return v;
}

struct Rest {  // of a softmax
  float m, l;
};

// What a block has to itself. A part of a warp shares a key; each part has sums of its own.
template <int Dim, int Heads>
struct Shared {
  static constexpr int kLanes = Dim / 8;      // that share a key
  static constexpr int kParts = 32 / kLanes;  // of a warp
  static constexpr int kStates = kWarps * kParts;
  float queries[Heads][Dim];
  __align__(16) __half fresh[2][Dim];  // this run's key and value
  Rest rests[kStates][Heads];
  float outputs[kStates][Heads][Dim];
  float weights[kStates][Heads];
  Rest block_rest[Heads];
  int last;
};

// The keys of a block: `begin` to `end` of those of a slot and KV head, of which `active` blocks have some.
struct Share {
  int valid, active, begin, end;
  bool owns_fresh;

  __device__ static int split() { return int(blockIdx.x); }
  __device__ static int kv_head() { return int(blockIdx.y); }
  __device__ static int slot() { return int(blockIdx.z); }
};
__device__ __forceinline__ bool is_refused(const AttentionArgs& args) {
  return args.refused != nullptr && *args.refused != 0;
}
__device__ __forceinline__ Share share_of(const DecodeAttentionArgs& args) {
  const AttentionArgs& a = args.a;
  Share share{};
  share.valid = *a.valid[share.slot()];
  const int keys = min(share.valid + 1, a.context);
  const int seen = min(keys, a.window);
  const int chunk = ((seen + args.splits - 1) / args.splits + 15) / 16 * 16;
  share.active = (seen + chunk - 1) / chunk;
  share.begin = keys - seen + share.split() * chunk;
  share.end = min(share.begin + chunk, keys);
  return share;
}

__device__ __forceinline__ Rotation rotation_of(const DecodeAttentionArgs& args, const Share& share) {
  return {static_cast<const __half*>(args.cos), static_cast<const __half*>(args.sin),
          min(share.valid, args.table_rows - 1)};
}

// The queries of the KV head, a warp each.
template <int Dim, int Heads>
__device__ __forceinline__ void make_queries(const DecodeAttentionArgs& args, const Share& share, Shared<Dim, Heads>& s,
                                             int warp, int lane) {
  const AttentionArgs& a = args.a;
  const Rotation rotation = rotation_of(args, share);
  for (int h = warp; h < Heads; h += kWarps) {
    float values[Dim / 32];
    const int64_t column = int64_t(share.kv_head() * Heads + h) * Dim;
    if (args.fused) {
      const auto* x = static_cast<const __half*>(args.x_q) + share.slot() * args.x_stride + column;
      make_head<Dim>(x, args.q_norm, args.q_epsilon, rotation, lane, values);
    } else {
      const auto* x = static_cast<const __half*>(a.q) + share.slot() * a.q_stride + column;
      make_head<Dim>(x, nullptr, 0, {}, lane, values);
    }
#pragma unroll
    for (int j = 0; j < Dim / 32; ++j) s.queries[h][lane + 32 * j] = values[j] * a.scale;
  }
}

// This run's key and value, by one warp: for the block, and into the caches `k` and `v`.
template <int Dim, int Heads>
__device__ __forceinline__ void make_fresh(const DecodeAttentionArgs& args, const Share& share, Shared<Dim, Heads>& s,
                                           __half* k, __half* v, int lane) {
  const Rotation rotation = rotation_of(args, share);
  const int64_t at = share.slot() * args.x_stride + int64_t(share.kv_head()) * Dim;
  float key[Dim / 32], value[Dim / 32];
  make_head<Dim>(static_cast<const __half*>(args.x_k) + at, args.k_norm, args.k_epsilon, rotation, lane, key);
  make_head<Dim>(static_cast<const __half*>(args.x_v) + at, nullptr, 0, {}, lane, value);
  const bool write = !is_refused(args.a) && *args.current[share.slot()] >= 1;
#pragma unroll
  for (int j = 0; j < Dim / 32; ++j) {
    const int i = lane + 32 * j;
    s.fresh[0][i] = __float2half_rn(key[j]);
    s.fresh[1][i] = __float2half_rn(value[j]);
    if (!write) continue;
    k[int64_t(share.valid) * Dim + i] = s.fresh[0][i];
    v[int64_t(share.valid) * Dim + i] = s.fresh[1][i];
  }
}

// What a part of a warp has of each head so far: a lane eight elements of the output.
template <int Heads>
struct Sums {
  float o[Heads][8] = {}, m[Heads], l[Heads];
};

// use(u, kv) with a lane's elements of each key or value in flight.
template <typename Use>
__device__ __forceinline__ void for_elements(const uint4 (&raw)[kUnroll], const Use& use) {
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    float kv[8];
    load8(reinterpret_cast<const __half*>(&raw[u]), kv);
    use(u, kv);
  }
}

// Scores of kUnroll keys, summed over the lanes that share them.
template <int Heads, int Lanes>
__device__ __forceinline__ void score_keys(const float (&q)[Heads][8], const uint4 (&raw)[kUnroll],
                                           float (&score)[Heads][kUnroll]) {
  for_elements(raw, [&](int u, const float (&kv)[8]) {
#pragma unroll
    for (int h = 0; h < Heads; ++h) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = fmaf(q[h][i], kv[i], sum);
      score[h][u] = sum;
    }
  });
#pragma unroll
  for (int step = 1; step < Lanes; step *= 2) {
#pragma unroll
    for (int h = 0; h < Heads; ++h) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) score[h][u] += __shfl_xor_sync(0xffffffffu, score[h][u], step);
    }
  }
}

// Scores to shares of the softmax so far; keys at or beyond `end`, whose scores are 0, have none.
template <int Heads>
__device__ __forceinline__ void take_shares(Sums<Heads>& sums, float (&score)[Heads][kUnroll], int base, int step,
                                            int end) {
#pragma unroll
  for (int h = 0; h < Heads; ++h) {
    float now = sums.m[h];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (h == 0) sums.l[h] = marked(sums.l[h], score[h][u]);  // a key that is not finite shows in every head
      if (base + u * step >= end) score[h][u] = -INFINITY;
      now = fmaxf(now, score[h][u]);
    }
    const float keep = now == -INFINITY ? 1.0f : expf(sums.m[h] - now);
    sums.m[h] = now;
    sums.l[h] *= keep;
#pragma unroll
    for (int i = 0; i < 8; ++i) sums.o[h][i] *= keep;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      score[h][u] = now == -INFINITY ? 0.0f : expf(score[h][u] - now);
      sums.l[h] += score[h][u];
    }
  }
}

template <int Heads>
__device__ __forceinline__ void add_values(Sums<Heads>& sums, const uint4 (&raw)[kUnroll],
                                           const float (&score)[Heads][kUnroll]) {
  for_elements(raw, [&](int u, const float (&kv)[8]) {
#pragma unroll
    for (int h = 0; h < Heads; ++h) {
#pragma unroll
      for (int i = 0; i < 8; ++i) sums.o[h][i] = fmaf(score[h][u], kv[i], sums.o[h][i]);
    }
  });
}

// The keys of a part of a warp, kUnroll at a time; what they add up to goes to shared memory.
template <int Dim, int Heads>
__device__ __forceinline__ void attend_keys(const Share& share, Shared<Dim, Heads>& s, const __half* k, const __half* v,
                                            int warp, int lane) {
  using S = Shared<Dim, Heads>;
  const int part = lane / S::kLanes, first = lane % S::kLanes * 8, end = share.end;
  Sums<Heads> sums;
  float q[Heads][8];
#pragma unroll
  for (int h = 0; h < Heads; ++h) {
    sums.m[h] = -INFINITY;
    sums.l[h] = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) q[h][i] = s.queries[h][first + i];
  }
  for (int base = share.begin + (warp * S::kParts + part); base - part < end; base += S::kStates * kUnroll) {
    uint4 raw_k[kUnroll], raw_v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int key = base + u * S::kStates;
      if (key < end) {
        const bool mine = share.owns_fresh && key == share.valid;
        raw_k[u] = *reinterpret_cast<const uint4*>(mine ? &s.fresh[0][first] : k + int64_t(key) * Dim + first);
        raw_v[u] = *reinterpret_cast<const uint4*>(mine ? &s.fresh[1][first] : v + int64_t(key) * Dim + first);
      } else {
        raw_k[u] = raw_v[u] = make_uint4(0, 0, 0, 0);
      }
    }
    float score[Heads][kUnroll];
    score_keys<Heads, S::kLanes>(q, raw_k, score);
    take_shares(sums, score, base, S::kStates, end);
    add_values(sums, raw_v, score);
  }
  const int state = warp * S::kParts + part;
#pragma unroll
  for (int h = 0; h < Heads; ++h) {
    if (first == 0) s.rests[state][h] = {sums.m[h], sums.l[h]};
#pragma unroll
    for (int i = 0; i < 8; ++i) s.outputs[state][h][first + i] = sums.o[h][i];
  }
}

}  // namespace tcim_lite::cuda::decode_attention
