// A Linear of a model with experts, of a single row: its warps meet once for as many tiles as there are warps, and then
// each finishes one. With the short tiles of experts this is faster than meeting after each (30B-A3B: 3 to 4 %); dense
// models are up to 2 % slower that way.
#pragma once

#include "backends/cuda/decode/linear.cuh"

namespace tcim_lite::cuda::decode {

// As finish_tile(), of a Linear that combines: the experts' results, each rounded, by their shares.
template <typename Shape, int Blocks>
__device__ __forceinline__ void combine_tile(const LinearPhase& linear, const Handover<Shape>& handover,
                                             const ChosenExperts<true>& experts,
                                             const typename TileSums<Shape>::Tile& sums, int tile,
                                             const Residual& residual) {
  const int lane = threadIdx.x % 32, column = lane % (16 * Blocks), output = tile * 16 * Blocks + lane;
  const int each = ExpertShare::warps_of_each(Shape::kWarps, linear.chosen);
  float total = 0;
  for (int rank = 0; rank < linear.chosen; ++rank) {
    float one = 0;
    for (int part = 0; part < each; ++part) one += sums[rank * each + part][0][column];
    total = fmaf(experts.shares[rank], rounded<__half>(one), total);
  }
  const bool has_one = lane < 16 * Blocks && output < linear.outputs;
  if (linear.epilogue == kAddResidual) total = residual.wait(handover, output, has_one) + rounded<__half>(total);
  store_outputs(end_of(linear, handover), static_cast<__half*>(linear.y), output, has_one, total);
}

// Biases of a lane's outputs, where a warp has one expert alone; the first warp of several that share it adds them.
template <typename Shape, int Blocks>
__device__ __forceinline__ void load_biases(const LinearPhase& linear, const ChosenExperts<true>& experts, int tile,
                                            float (&bias)[Blocks][2]) {
  const int warp = threadIdx.x / 32, each = ExpertShare::warps_of_each(Shape::kWarps, linear.chosen);
  if (linear.bias == nullptr || warp % each != 0 || warp / each >= linear.chosen) return;
  const float* from = linear.bias + int64_t(experts.ids[warp / each]) * linear.outputs;
#pragma unroll
  for (int i = 0; i < 2 * Blocks; ++i) {
    const int output = tile * 16 * Blocks + i * 8 + int(threadIdx.x % 32) / 4;
    if (output < linear.outputs) bias[i / 2][i % 2] = from[output];
  }
}

template <typename Shape, int Blocks, typename Ring>
__device__ __forceinline__ void multiply_expert_tiles(const LinearPhase& linear, const Handover<Shape>& handover,
                                                      Ring& ring, LinearInputs<Shape>& prepared, TileSums<Shape>& sums,
                                                      const ChosenExperts<true>& experts) {
  static_assert(TileSums<Shape>::kBuffers == Shape::kWarps);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, tiles = linear.tiles, grid = gridDim.x;
  const bool combines = linear.combines;
  for (int tile = blockIdx.x; tile < tiles;) {
    const int own = tile + warp * grid;  // what this warp finishes
    const bool finishes = own < tiles;
    // Fetched early: at the end nothing would hide its latency.
    const int output = own * 16 * Blocks + (Blocks == 2 ? lane : lane % 16);
    Residual residual;
    float bias = 0;
    if (finishes && output < linear.outputs) {
      if (linear.epilogue == kAddResidual) residual.fetch(linear, handover, 0, output);
      if (linear.bias != nullptr && !combines) {
        const int shift = linear.chosen == 0 ? 0 : tiles_to_expert(experts, own, tiles, linear.chosen);
        bias = linear.bias[output + shift * 16 * Blocks];
      }
    }
#pragma unroll 1
    for (int i = 0; i < Shape::kWarps && tile < tiles; ++i, tile += grid) {
      float own_bias[Blocks][2] = {}, acc[Blocks][4] = {};
      if (combines) load_biases<Shape, Blocks>(linear, experts, tile, own_bias);
      multiply_tile<Shape>(acc, ring, prepared, tile + grid >= tiles);
#pragma unroll
      for (int b = 0; b < Blocks; ++b) acc[b][0] += own_bias[b][0], acc[b][2] += own_bias[b][1];
      leave_sums<Shape, Blocks>(acc, sums.values[i]);
    }
    __syncthreads();
    if (finishes && combines) {
      combine_tile<Shape, Blocks>(linear, handover, experts, sums.values[warp], own, residual);
    } else if (finishes) {
      finish_tile<Shape, Blocks>(linear, handover, end_of(linear, handover), sums.values[warp], 0, own, bias, residual);
    }
    if (tile < tiles) __syncthreads();  // the sums are read
  }
}

}  // namespace tcim_lite::cuda::decode
