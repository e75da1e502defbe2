// The end of attention of one token a slot (attention_decode.cu): sums of a block's parts, then of the blocks.
#pragma once

#include "backends/cuda/kernels/attention_decode.cuh"

namespace tcim_lite::cuda::decode_attention {

// Where a block's results go, and what takes part in their sums.
struct Result {
  __half* y;
  bool refused;
  int* odd;
  const float* sinks;  // of the KV head's queries; null: none

  // The sum of a head with its sink, which is infinite where the sink is far above all scores: the result is 0 then.
  __device__ __forceinline__ float whole(Rest rest, int h) const {
    return sinks == nullptr ? rest.l : rest.l + expf(sinks[h] - rest.m);
  }

  __device__ __forceinline__ void store(int at, float value) const {
    tell_unless_finite(value, odd);
    if (!refused) cuda::store(y + at, value);
  }
};

// One (m, l, o) of the block: the result where it is the only one, else left at `mine` for the last block.
template <int Dim, int Heads>
__device__ __forceinline__ void gather_parts(const Share& share, const Result& result, Shared<Dim, Heads>& s,
                                             float* mine, int warp, int lane) {
  constexpr int kStates = Shared<Dim, Heads>::kStates;
  for (int h = warp; h < Heads; h += kWarps) {
    const float own = lane < kStates ? s.rests[lane][h].m : -INFINITY;
    const float most = warp_most(own);
    const float weight = lane < kStates ? expf(own - most) : 0.0f;
    const float sum = warp_sum(lane < kStates ? s.rests[lane][h].l * weight : 0.0f);
    if (lane < kStates) s.weights[lane][h] = weight;
    if (lane == 0) s.block_rest[h] = {most, sum};
  }
  __syncthreads();
  for (int i = threadIdx.x; i < Heads * Dim; i += kThreads) {
    const int h = i / Dim, d = i % Dim;
    float total = 0;
#pragma unroll
    for (int state = 0; state < kStates; ++state) total = fmaf(s.outputs[state][h][d], s.weights[state][h], total);
    if (share.active == 1) {
      result.store(i, total / result.whole(s.block_rest[h], h));
      continue;
    }
    mine[i] = total;
    if (d == 0) reinterpret_cast<float2*>(mine + Heads * Dim)[h] = make_float2(s.block_rest[h].m, s.block_rest[h].l);
  }
}

// Whether this block is the last of those with keys of the pair; what the others left is there then.
template <typename S>
__device__ __forceinline__ bool is_last(S& s, int* arrived, int active) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) s.last = atomicAdd(arrived, 1) == active - 1;
  __syncthreads();
  if (!s.last) return false;
  __threadfence();
  if (threadIdx.x == 0) *arrived = 0;
  return true;
}

// What each block left, [Heads][Dim] outputs and [Heads] rests, added up.
template <int Dim, int Heads>
__device__ __forceinline__ void merge_blocks(const Share& share, const Result& result, Shared<Dim, Heads>& s,
                                             const float* all, int warp, int lane) {
  constexpr int64_t kStride = decode_partial_floats(Heads, Dim);
  constexpr int kVectors = Heads * Dim / 4, kEach = (kVectors + kThreads - 1) / kThreads;  // of a thread
  const int active = share.active;
  float* weights = &s.outputs[0][0][0];  // [active][Heads], the weight of each block over the whole sum
  for (int h = warp; h < Heads; h += kWarps) {
    const auto rest_of = [&](int split) {
      return __ldcg(reinterpret_cast<const float2*>(all + split * kStride + Heads * Dim) + h);
    };
    float most = -INFINITY, sum = 0;
    for (int split = lane; split < active; split += 32) most = fmaxf(most, rest_of(split).x);
    most = warp_most(most);
    for (int split = lane; split < active; split += 32) {
      const float2 rest = rest_of(split);
      const float weight = expf(rest.x - most);
      weights[split * Heads + h] = weight;
      sum = fmaf(rest.y, weight, sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) s.block_rest[h] = {most, sum};
  }
  __syncthreads();
  // Many loads in flight: one block reads what up to a hundred have left.
  float total[kEach][4] = {};
#pragma unroll 8
  for (int split = 0; split < active; ++split) {
#pragma unroll
    for (int each = 0; each < kEach; ++each) {
      const int i = int(threadIdx.x) + each * kThreads;
      if (i >= kVectors) continue;
      const float4 left = __ldcg(reinterpret_cast<const float4*>(all + split * kStride) + i);
      const float weight = weights[split * Heads + i * 4 / Dim];
      total[each][0] = fmaf(left.x, weight, total[each][0]);
      total[each][1] = fmaf(left.y, weight, total[each][1]);
      total[each][2] = fmaf(left.z, weight, total[each][2]);
      total[each][3] = fmaf(left.w, weight, total[each][3]);
    }
  }
#pragma unroll
  for (int each = 0; each < kEach; ++each) {
    const int i = int(threadIdx.x) + each * kThreads;
    if (i >= kVectors) continue;
    const int h = i * 4 / Dim;
    const float whole = result.whole(s.block_rest[h], h);
#pragma unroll
    for (int k = 0; k < 4; ++k) result.store(i * 4 + k, total[each][k] / whole);
  }
}

}  // namespace tcim_lite::cuda::decode_attention
