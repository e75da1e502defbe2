// The experts of a block's row, and which of their inputs and weights a warp has.
#pragma once

#include "backends/cuda/decode/args.h"

namespace tcim_lite::cuda::decode {

// Of a Linear that combines: a warp has one expert, and others may have the rest of its inputs.
struct ExpertShare {
  int rank, begin, end;  // groups of the expert; none for a warp without one

  __device__ __forceinline__ static int warps_of_each(int warps, int chosen) { return warps / chosen; }
};
template <typename Shape>
__device__ __forceinline__ ExpertShare expert_share(int groups, int chosen, int warp) {
  const int each = ExpertShare::warps_of_each(Shape::kWarps, chosen), rank = warp / each, part = warp - rank * each;
  if (rank >= chosen) return {0, 0, 0};
  return {rank, groups * part / each, groups * (part + 1) / each};
}

// The experts that this block's row takes, by rank, and their shares.
template <bool Experts>
struct ChosenExperts {};
template <>
struct ChosenExperts<true> {
  int ids[kMostChosen];
  float shares[kMostChosen];
};
// Tiles from one that counts as if ranks were experts to that of the expert's.
__device__ __forceinline__ int tiles_to_expert(const ChosenExperts<true>& experts, int tile, int tiles, int chosen) {
  const int each = tiles / chosen, rank = tile / each;
  return (experts.ids[rank] - rank) * each;
}

}  // namespace tcim_lite::cuda::decode
