// What the kernel is compiled for, and what follows from it.
#pragma once

#include "backends/cuda/decode/args.h"
#include "backends/cuda/kernels/linear.cuh"

namespace tcim_lite::cuda::decode {

// Inputs of the widest Linear that a kernel has room for.
constexpr int most_inputs_of(int warps, bool experts) {
  return experts ? kMostCombined : warps == kMostWarps ? kMostInputs : kFewInputs;
}

// What the kernel is compiled for. Rows: 1, or kMostRows for any number from 2 on. Every warp executes the fixed
// instructions of a phase, so small phases are faster with fewer warps, and then there are registers for as many others
// that do nothing but fetch (fetched_ring.cuh). Experts: of a single row.
template <WeightFormat F, int Rows, int Warps, bool Experts = false, int Widest = most_inputs_of(Warps, Experts)>
struct KernelShape {
  static constexpr WeightFormat kFormat = F;
  static constexpr bool kHalf = F == WeightFormat::LinearF16, kExperts = Experts;
  static constexpr bool kFetched = Rows == 1 && Warps < kMostWarps && !Experts;
  static constexpr int kRows = Rows, kWarps = Warps;
  static constexpr int kThreads = 32 * Warps, kAllThreads = kThreads * (kFetched ? 2 : 1);  // that compute; in all
  static constexpr int kWidest = Widest;
  static constexpr int kMostHeads = most_heads_per_kv(Experts);
  // Products with a group of the row in each column (multiply_columns()): they add to the latencies that small phases
  // wait for.
  static constexpr bool kColumns = F == WeightFormat::LinearW4 && Rows == 1 && !Experts && Widest > kFewInputs;
  // 8-bit weights and float16 keep the memory busy enough: 8B w8 would be 1 % slower.
  static constexpr bool kLooksAhead = F == WeightFormat::LinearW4 && Rows == 1 && Warps == kMostWarps;
};

// A stage holds eight rows of a cache (keys.cuh) or kChunk items: 16 outputs by kChunk * 64 inputs. kStep: from
// an item's weights to those of the next.
template <WeightFormat Format>
struct RingStage;
template <>
struct RingStage<WeightFormat::LinearW4> {
  static constexpr int kItem = kItemW4, kStep = kItem, kChunk = 4;
};
template <>
struct RingStage<WeightFormat::LinearW8> {
  static constexpr int kItem = kItemW8, kStep = kItem, kChunk = 2;
};
template <>
struct RingStage<WeightFormat::LinearF16> {
  static constexpr int kItem = 2048, kStep = 128, kChunk = 1;
};

// All warps that compute.
template <typename Shape>
__device__ __forceinline__ void sync_warps() {
  if constexpr (Shape::kFetched) {
    asm volatile("bar.sync 1, %0;" ::"n"(Shape::kThreads) : "memory");
  } else {
    __syncthreads();
  }
}

}  // namespace tcim_lite::cuda::decode
