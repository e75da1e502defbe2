// A Linear of one row as a phase of a chain: a block takes tiles of 16 or 32 outputs (with SiLU-mul 16 gates and their
// ups), its warps a share of the inputs each; their sums meet in shared memory.
#pragma once

#include "backends/cuda/kernels/chain_weights.cuh"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda {

constexpr int kMostPieces = 4;  // of 8 inputs, of a thread
constexpr int kMostChainInputs = kMostPieces * kChainThreads * 8;

// acc += `items` items of 16 outputs and 64 inputs, from inputs 64 * group on. The sums are in every column alike.
template <WeightFormat Format>
__device__ __forceinline__ void multiply_chunk(float (&acc)[4], const char* chunk, int items, int group, const char* x,
                                               const float* scales) {
  const int lane = threadIdx.x % 32, t = lane % 4;
#pragma unroll
  for (int i = 0; i < ChainRing<Format>::kChunk; ++i) {
    if (i >= items) break;  // the same for the whole warp
    const char* item = chunk + i * ChainRing<Format>::kItem;
    if constexpr (Format == WeightFormat::LinearF16) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 a = *reinterpret_cast<const uint4*>(item + half * 1024 + lane * 16);
        const uint4 b = *reinterpret_cast<const uint4*>(item + half * 1024 + 512 + lane * 16);
        const uint4 v = *reinterpret_cast<const uint4*>(x + group * 128 + half * 64 + 16 * t);
        mma_half(acc, a.x, b.x, a.y, b.y, v.x, v.y);
        mma_half(acc, a.z, b.z, a.w, b.w, v.z, v.w);
      }
    } else {
      const uint4 v = *reinterpret_cast<const uint4*>(x + (group + i) * 64 + 16 * t);
      int dot[4] = {0, 0, 0, 0};
      float low, high;  // scales of outputs g and g + 8
      multiply_item<Format>(dot, low, high, item, v, lane);
      const float s = scales[group + i];
      acc[0] = fmaf(float(dot[0]), low * s, acc[0]);
      acc[2] = fmaf(float(dot[2]), high * s, acc[2]);
    }
  }
}

// The row into shared memory: normalised, and quantised where weights are. `ready` returns when x may be read.
template <WeightFormat Format, typename Ready>
__device__ __forceinline__ void prepare_row(const ChainLinear& linear, char* x, float* scales, float* scratch,
                                            const Ready& ready) {
  const int inputs = linear.inputs, first = int(threadIdx.x) * 8;
  const bool norm = linear.norm_weight != nullptr;
  // Weights of the norm do not wait.
  float weight[8] = {};
  if (norm && first < inputs) load8_weights(linear.norm_weight + first, weight);
  ready();
  const auto* from = static_cast<const __half*>(linear.x);
  uint4 kept[kMostPieces];
#pragma unroll
  for (int i = 0; i < kMostPieces; ++i) {
    const int k = i * kChainThreads * 8 + first;
    kept[i] = k < inputs ? __ldcg(reinterpret_cast<const uint4*>(from + k)) : make_uint4(0, 0, 0, 0);
  }
  float inverse = 1;
  if (norm) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kMostPieces; ++i) {
      if (i * kChainThreads * 8 >= inputs) break;
      float v[8];
      load8(reinterpret_cast<const __half*>(&kept[i]), v);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum = fmaf(v[j], v[j], sum);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int w = 0; w < kChainWarps; w += 4) {
      const float4 four = *reinterpret_cast<const float4*>(scratch + w);
      sum += (four.x + four.y) + (four.z + four.w);
    }
    inverse = 1.0f / sqrtf(sum / float(inputs) + linear.epsilon);
  }
#pragma unroll
  for (int i = 0; i < kMostPieces; ++i) {
    if (i * kChainThreads * 8 >= inputs) break;
    const int k = i * kChainThreads * 8 + first;
    const bool inside = k < inputs;
    float v[8];
    load8(reinterpret_cast<const __half*>(&kept[i]), v);
    if (norm) {
      if (i > 0 && inside) load8_weights(linear.norm_weight + k, weight);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = v[j] * inverse * weight[j];
      round_halves(v);
    }
    store_activations<Format>(v, k, inside, x, scales);
  }
  __syncthreads();
}

// sums: [2][kChainWarps][Blocks][16]. A tile's last step is done by one warp, in turn, while the others go on.
template <WeightFormat Format, int Blocks>
__device__ __forceinline__ void multiply_tiles(const ChainLinear& linear, ChainWeights<Format>& weights, const char* x,
                                               const float* scales, float* sums) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int groups = linear.inputs / 64, tiles = linear.tiles;
  const int begin = share_begin(groups, warp), end = share_begin(groups, warp + 1);
  int turn = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++turn) {
    const bool finishes = turn % kChainWarps == warp;
    // Lanes of the finishing warp: output n of the tile, from all warps (Blocks 2) or from half of them.
    const int n = lane % 16, half = lane / 16, output = tile * 16 * Blocks + (Blocks == 2 ? lane : n);
    float residual = 0, bias = 0;
    if (finishes && output < linear.outputs) {
      if (Blocks == 1 && linear.epilogue == kAddResidual)
        residual = __half2float(__ldcg(static_cast<const __half*>(linear.residual) + output));
      if (linear.bias != nullptr) bias = linear.bias[output];
    }
    float* of_tile = sums + turn % 2 * kChainWarps * Blocks * 16;
#pragma unroll
    for (int b = 0; b < Blocks; ++b) {
      float acc[4] = {};
      for (int group = begin; group < end; group += ChainRing<Format>::kChunk) {
        multiply_chunk<Format>(acc, weights.take(), end - group, group, x, scales);
        // The last chunk waits until the other blocks need not wait for this one.
        const bool more = group + ChainRing<Format>::kChunk < end || b + 1 < Blocks || tile + int(gridDim.x) < tiles;
        if (more) weights.give_up();
      }
      if (lane % 4 == 0) {
        of_tile[(warp * Blocks + b) * 16 + lane / 4] = acc[0];
        of_tile[(warp * Blocks + b) * 16 + lane / 4 + 8] = acc[2];
      }
    }
    __syncthreads();
    if (!finishes) continue;
    float total = 0;
    if constexpr (Blocks == 2) {
#pragma unroll
      for (int w = 0; w < kChainWarps; ++w) total += of_tile[w * 32 + lane];
      total += bias;
      if (linear.epilogue == kSiluMul) {
        total = rounded<__half>(total);
        const float up = __shfl_down_sync(0xffffffffu, total, 16);
        if (half == 0) store(static_cast<__half*>(linear.y) + tile * 16 + n, silu(total) * up);
      } else {
        store(static_cast<__half*>(linear.y) + output, total);
      }
    } else {
#pragma unroll
      for (int w = 0; w < kChainWarps / 2; ++w) total += of_tile[(half * kChainWarps / 2 + w) * 16 + n];
      total += __shfl_down_sync(0xffffffffu, total, 16);
      total += bias;
      if (linear.epilogue == kAddResidual) total = residual + rounded<__half>(total);
      if (half == 0 && output < linear.outputs) store(static_cast<__half*>(linear.y) + output, total);
    }
  }
}

}  // namespace tcim_lite::cuda
