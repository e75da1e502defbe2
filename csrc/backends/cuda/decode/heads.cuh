// What comes before attention: a warp's head of the projection with its norm and RoPE.
#pragma once

#include "backends/cuda/decode/mail.cuh"
#include "backends/cuda/decode/unit.cuh"
#include "backends/cuda/kernels/common.cuh"

namespace tcim_lite::cuda::decode {

// Of elements 2 lane and 2 lane + 1 of a warp's head. Warps make a query each, then a key each of the run's tokens.
struct Rotation {
  bool wanted;
  float2 cos, sin;
};

__device__ __forceinline__ Rotation load_rotation(const ProgramArgs& args, const AttentionUnit& unit) {
  Rotation r{args.cos != nullptr, {}, {}};
  if (!r.wanted) return r;
  const int warp = threadIdx.x / 32, heads = args.heads_per_kv;
  const int position = unit.valid + (warp < heads ? unit.token : warp - heads);
  const int64_t at = int64_t(min(position, args.table_rows - 1)) * (kHeadDim / 4) + threadIdx.x % 32;
  r.cos = __half22float2(static_cast<const __half2*>(args.cos)[at]);
  r.sin = __half22float2(static_cast<const __half2*>(args.sin)[at]);
  return r;
}

// A head in a warp: a lane's elements 2 lane and 2 lane + 1, and those 64 further on.
struct Head {
  __half2 low, high;
};

// Where a head comes from: the mail, column `column` on, or memory.
struct HeadSource {
  int column;
  const __half* x;
};

// All of them at once: a word takes a trip to the L2.
template <typename Shape, int Count>
__device__ __forceinline__ void take_heads(const Handover<Shape>& handover, const HeadSource (&from)[Count],
                                           Head (&heads)[Count]) {
  const int lane = threadIdx.x % 32;
  uint32_t words[Count][2];
  if (!handover.mailed()) {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      words[i][0] = __ldcg(reinterpret_cast<const uint32_t*>(from[i].x) + lane);
      words[i][1] = __ldcg(reinterpret_cast<const uint32_t*>(from[i].x) + lane + 32);
    }
  } else {
    const auto mail = handover.x();
    for (bool here = false; !__all_sync(0xffffffffu, here);) {
      here = true;
#pragma unroll
      for (int i = 0; i < 2 * Count; ++i) {
        const uint64_t word = mail.peek(from[i / 2].column / 2 + lane + i % 2 * 32);
        here &= mail.is_here(word);
        words[i / 2][i % 2] = uint32_t(word);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < Count; ++i)
    heads[i] = {*reinterpret_cast<const __half2*>(&words[i][0]), *reinterpret_cast<const __half2*>(&words[i][1])};
}

__device__ __forceinline__ void store_head(__half* to, const Head& head) {
  const int lane = threadIdx.x % 32;
  reinterpret_cast<__half2*>(to)[lane] = head.low;
  reinterpret_cast<__half2*>(to)[lane + 32] = head.high;
}

// Norm, then RoPE, each rounded.
__device__ __forceinline__ Head make_head(const Head& x, bool norm, const float2 (&weight)[2], float epsilon,
                                          const Rotation& rotation) {
  const float2 low = __half22float2(x.low), high = __half22float2(x.high);
  float v[4] = {low.x, low.y, high.x, high.y};
  if (norm) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) sum = fmaf(v[j], v[j], sum);
    const float inverse = inverse_root(fmaf(warp_sum(sum), 1.0f / kHeadDim, epsilon));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2& two = weight[j / 2];
      v[j] = rounded<__half>(v[j] * inverse * (j % 2 == 0 ? two.x : two.y));
    }
  }
  if (rotation.wanted) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float cos = j == 0 ? rotation.cos.x : rotation.cos.y, sin = j == 0 ? rotation.sin.x : rotation.sin.y;
      const float x1 = v[j], x2 = v[j + 2];
      v[j] = rounded<__half>(fmaf(-x2, sin, x1 * cos));
      v[j + 2] = rounded<__half>(fmaf(x1, sin, x2 * cos));
    }
  }
  return {__floats2half2_rn(v[0], v[1]), __floats2half2_rn(v[2], v[3])};
}

}  // namespace tcim_lite::cuda::decode
