// A Linear as a phase of a chain: a block takes tiles of 16 or 32 outputs (with SiLU-mul 16 gates and their ups), its
// warps a share of the inputs each; their sums meet in shared memory.
#pragma once

#include "backends/cuda/kernels/chain_rows.cuh"

namespace tcim_lite::cuda {

// acc += `items` items of 16 outputs and 64 inputs, times the rows' groups from `x` on. A single row's sums are in
// every column alike; of several, lane 4 g + t has rows 2 t and 2 t + 1.
template <WeightFormat Format, int Rows>
__device__ __forceinline__ void multiply_chunk(float (&acc)[4], const char* chunk, int items, const char* x) {
  using Prepared = ChainRows<Format, Rows>;
  const int lane = threadIdx.x % 32, t = lane % 4;
  const int at = Rows == 1 ? 16 * t : 16 * lane;
#pragma unroll
  for (int i = 0; i < ChainRing<Format>::kChunk; ++i) {
    if (i >= items) break;  // the same for the whole warp
    const char* item = chunk + i * ChainRing<Format>::kItem;
    const char* group = x + i * Prepared::kGroupBytes;
    if constexpr (Format == WeightFormat::LinearF16) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 a = *reinterpret_cast<const uint4*>(item + half * 1024 + lane * 16);
        const uint4 b = *reinterpret_cast<const uint4*>(item + half * 1024 + 512 + lane * 16);
        const uint4 v = *reinterpret_cast<const uint4*>(group + half * Prepared::kPartBytes + at);
        mma_half(acc, a.x, b.x, a.y, b.y, v.x, v.y);
        mma_half(acc, a.z, b.z, a.w, b.w, v.z, v.w);
      }
    } else {
      const uint4 v = *reinterpret_cast<const uint4*>(group + at);
      // 1.5 * 2^23 plus a dot is a float's bits: cheaper than a conversion.
      int sum[4] = {0x4b400000, 0x4b400000, 0x4b400000, 0x4b400000};
      float low, high;  // scales of outputs g and g + 8
      multiply_item<Format>(sum, low, high, item, v, lane);
      const auto dot = [&](int i) { return __int_as_float(sum[i]) - 12582912.0f; };
      const auto* scales = reinterpret_cast<const float*>(group + Prepared::kScales);
      if constexpr (Rows == 1) {
        acc[0] = fmaf(dot(0), low * scales[0], acc[0]);
        acc[2] = fmaf(dot(2), high * scales[0], acc[2]);
      } else {
        const float2 two = *reinterpret_cast<const float2*>(scales + 2 * t);
        acc[0] = fmaf(dot(0), low * two.x, acc[0]);
        acc[1] = fmaf(dot(1), low * two.y, acc[1]);
        acc[2] = fmaf(dot(2), high * two.x, acc[2]);
        acc[3] = fmaf(dot(3), high * two.y, acc[3]);
      }
    }
  }
}

// Sums of a tile: [warp][row] of kWidth, which spreads what a warp writes at once over the banks. A single row has two
// such, of which one is read while the next is written.
template <int Rows>
struct ChainSums {
  static constexpr int kWidth = 32 + 4, kBuffers = Rows == 1 ? 2 : 1;
  float values[kBuffers][kChainWarps][Rows][kWidth];
};

// y's 16 or 32 columns of a tile in one row, by one warp.
template <int Rows, int Blocks>
__device__ __forceinline__ void finish_tile(const ChainLinear& linear, const float (&sums)[kChainWarps][Rows][36],
                                            int row, int tile, float bias, float residual) {
  const int lane = threadIdx.x % 32;
  auto* y = static_cast<__half*>(linear.y) + int64_t(row) * linear.y_stride;
  float total = 0;
  if constexpr (Blocks == 2) {
#pragma unroll
    for (int w = 0; w < kChainWarps; ++w) total += sums[w][row][lane];
  } else {
#pragma unroll
    for (int w = 0; w < kChainWarps / 2; ++w) total += sums[lane / 16 * (kChainWarps / 2) + w][row][lane % 16];
    total += __shfl_down_sync(0xffffffffu, total, 16);
  }
  total += bias;
  if (Blocks == 2 && linear.epilogue == kSiluMul) {
    total = rounded<__half>(total);
    const float up = __shfl_down_sync(0xffffffffu, total, 16);
    if (lane < 16) store(y + tile * 16 + lane, silu(total) * up);
    return;
  }
  if (linear.epilogue == kAddResidual) total = residual + rounded<__half>(total);
  const int output = tile * 16 * Blocks + lane;
  if (lane < 16 * Blocks && output < linear.outputs) store(y + output, total);
}

// A tile's last step is done by one warp a row, in turn, while the others go on.
template <WeightFormat Format, int Rows, int Blocks, typename Weights>
__device__ __forceinline__ void multiply_tiles(const ChainLinear& linear, int rows, Weights& weights,
                                               ChainRows<Format, Rows>& prepared, ChainSums<Rows>& sums) {
  using Prepared = ChainRows<Format, Rows>;
  constexpr int kChunk = ChainRing<Format>::kChunk;
  static_assert(Prepared::kPiece % kChunk == 0 && ChainSums<Rows>::kWidth == 36);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int tiles = linear.tiles, end = prepared.end();
  int turn = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++turn) {
    const int row = (warp - turn * rows) & (kChainWarps - 1);  // that this warp finishes
    const bool finishes = row < rows;
    // Fetched early: at the end nothing would hide its latency.
    const int output = tile * 16 * Blocks + (Blocks == 2 ? lane : lane % 16);
    float residual = 0, bias = 0;
    if (finishes && output < linear.outputs) {
      if (linear.epilogue == kAddResidual)
        residual = __half2float(
            __ldcg(static_cast<const __half*>(linear.residual) + int64_t(row) * linear.residual_stride + output));
      if (linear.bias != nullptr) bias = linear.bias[output];
    }
    float acc[Blocks][4] = {};
    for (int first = prepared.begin(); first < end; first += Prepared::kPiece) {
      if (prepared.in_pieces()) prepared.take_piece(first);
      const int last = min(first + Prepared::kPiece, end);
      for (int group = first; group < last; group += kChunk) {
        const char* x = prepared.groups() + (group - first) * Prepared::kGroupBytes;
#pragma unroll
        for (int b = 0; b < Blocks; ++b) {
          multiply_chunk<Format, Rows>(acc[b], weights.take(), last - group, x);
          // The last chunk waits until the other blocks need not wait for this one.
          const bool more = group + kChunk < end || b + 1 < Blocks || tile + int(gridDim.x) < tiles;
          if (more) weights.give_up();
        }
      }
    }
    auto& of_tile = sums.values[turn % ChainSums<Rows>::kBuffers];
    if (Rows > 1 && turn > 0) __syncthreads();  // the tile before is read
#pragma unroll
    for (int b = 0; b < Blocks; ++b) {
      if constexpr (Rows == 1) {
        if (t != 0) continue;
        of_tile[warp][0][b * 16 + g] = acc[b][0];
        of_tile[warp][0][b * 16 + g + 8] = acc[b][2];
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) of_tile[warp][2 * t + i % 2][b * 16 + g + i / 2 * 8] = acc[b][i];
      }
    }
    __syncthreads();
    if (finishes) finish_tile<Rows, Blocks>(linear, of_tile, row, tile, bias, residual);
  }
}

}  // namespace tcim_lite::cuda
