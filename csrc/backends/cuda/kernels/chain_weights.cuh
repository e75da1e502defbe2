// The weights that a warp of a chain reads, in the order in which it needs them, through a ring of asynchronous copies
// that is as far ahead as the ring is long, over the borders of phases.
#pragma once

#include "backends/cuda/kernels/chain.h"
#include "backends/cuda/kernels/linear.cuh"
#include "backends/cuda/kernels/mma.cuh"

namespace tcim_lite::cuda {

// What a chain's kernel is compiled for. Rows: 1, or kMostChainRows for any number from 2 on. What a phase costs
// whatever its size is paid by every warp, so small phases go faster with fewer of them.
template <WeightFormat F, int Rows, int Warps>
struct ChainShape {
  static constexpr WeightFormat kFormat = F;
  static constexpr bool kHalf = F == WeightFormat::LinearF16;
  static constexpr int kRows = Rows, kWarps = Warps, kThreads = 32 * Warps;
  static constexpr int kMostInputs = Warps == kMostWarps ? kMostChainInputs : kFewInputs;
};

// A stage holds kChunk items: 16 outputs by kChunk * 64 inputs. kStep: from an item's weights to those of the next.
template <WeightFormat Format>
struct ChainRing;
template <>
struct ChainRing<WeightFormat::LinearW4> {
  static constexpr int kItem = kItemW4, kStep = kItem, kChunk = 4;
};
template <>
struct ChainRing<WeightFormat::LinearW8> {
  static constexpr int kItem = kItemW8, kStep = kItem, kChunk = 2;
};
template <>
struct ChainRing<WeightFormat::LinearF16> {
  static constexpr int kItem = 2048, kStep = 128, kChunk = 1;
};

// Where a phase's weights are: what the ring needs to know of phases to come, in shared memory.
struct ChainPlace {
  const char* weights;
  int tiles;       // -1: attention
  int16_t groups;  // of 64 inputs; 0: no Linear
  int8_t blocks;
  bool meets;
};
__device__ __forceinline__ ChainPlace place_of(const ChainPhase& phase) {
  if (phase.kind != ChainPhase::Kind::Linear)
    return {nullptr, phase.kind == ChainPhase::Kind::Attention ? -1 : 0, 0, 0, phase.meets};
  return {static_cast<const char*>(phase.linear.weights), phase.linear.tiles, int16_t(phase.linear.inputs / 64),
          phase.linear.blocks, phase.meets};
}
// Groups of 64 inputs that a warp multiplies: [share(warp), share(warp + 1)).
template <typename Shape>
__device__ __forceinline__ int share_begin(int groups, int warp) {
  return int(unsigned(groups * warp) / Shape::kWarps);
}

template <typename Shape, int Stages>
class ChainWeights {
  using Ring = ChainRing<Shape::kFormat>;

 public:
  static constexpr int kStageBytes = Ring::kItem * Ring::kChunk;
  static constexpr int kBytes = kStageBytes * Stages;  // of a warp

  // How far it is; the same in all lanes of a warp.
  struct Position {
    int taken = 0;  // stage
    // What is fetched next.
    int phase = -1, tile = 0, block = 0, group = 0;
    int tiles = 0, groups = 0, blocks = 1, last = 0;
    const char* weights = nullptr;
  };

  __device__ ChainWeights(const ChainPlace* places, int count, char* ring)
      : places_(places), count_(count), ring_(ring) {
    next_phase();
#pragma unroll
    for (int i = 0; i < Stages; ++i) fetch(i);
  }

  // The next chunk, until give_up() or the next take(). Order: phase, tile, groups, block of the tile.
  __device__ __forceinline__ const char* take() {
    give_up();
    wait_for_copies<Stages - 1>();
    __syncwarp();
    holds_ = true;
    return ring_ + at_.taken * kStageBytes;
  }

  // Its stage takes what comes last in the ring.
  __device__ __forceinline__ void give_up() {
    if (!holds_) return;
    holds_ = false;
    __syncwarp();
    fetch(at_.taken);
    at_.taken = at_.taken + 1 == Stages ? 0 : at_.taken + 1;
  }

  // Out of registers while something else needs them all, and back.
  __device__ __forceinline__ void put_aside(Position& shared) const {
    if (lane() == 0) shared = at_;
    __syncwarp();
  }
  __device__ __forceinline__ void take_back(const Position& shared) { at_ = shared; }

 private:
  __device__ static int warp() { return int(threadIdx.x / 32u); }
  __device__ static int lane() { return int(threadIdx.x % 32u); }

  __device__ __forceinline__ void fetch(int to) {
    if (at_.phase < count_) {
      const int items = min(Ring::kChunk, at_.last - at_.group);
      char* stage = ring_ + to * kStageBytes + lane() * 16;
      const char* from = from_ + at_.block * at_.groups * Ring::kItem;
      if constexpr (Shape::kHalf) {
#pragma unroll
        for (int part = 0; part < 4; ++part)
          copy_async(stage + part * 512, from + part % 2 * at_.groups * (64 * 2 * 8) + part / 2 * 64);
      } else {
        constexpr int kPieces = Ring::kItem / 16;  // of 16 bytes
        const int mine = items * kPieces - lane();
#pragma unroll
        for (int first = 0; first < Ring::kChunk * kPieces; first += 32) {
          if (first < mine) copy_async(stage + first * 16, from + first * 16);
        }
      }
      advance();
    }
    commit_copies();
  }

  __device__ __forceinline__ void advance() {
    if (++at_.block < at_.blocks) return;
    at_.block = 0;
    at_.group += Ring::kChunk;
    from_ += Ring::kChunk * Ring::kStep;
    if (at_.group < at_.last) return;
    at_.tile += int(gridDim.x);
    if (at_.tile >= at_.tiles) return next_phase();
    seek();
  }

  __device__ void next_phase() {
    while (++at_.phase < count_) {
      const ChainPlace place = places_[at_.phase];
      at_.weights = place.weights;
      at_.tiles = place.tiles;
      at_.groups = place.groups;
      at_.blocks = place.blocks;
      at_.last = share_begin<Shape>(at_.groups, warp() + 1);
      at_.tile = int(blockIdx.x);
      if (share_begin<Shape>(at_.groups, warp()) < at_.last && at_.tile < at_.tiles) return seek();
    }
  }

  __device__ __forceinline__ void seek() {
    at_.group = share_begin<Shape>(at_.groups, warp());
    from_ = at_.weights + int64_t(at_.tile) * at_.blocks * at_.groups * Ring::kItem + at_.group * Ring::kStep;
    if constexpr (Shape::kHalf) {
      from_ += lane() / 4 * at_.groups * 128 + lane() % 4 * 16;
    } else {
      from_ += lane() * 16;
    }
  }

  const ChainPlace* const places_;
  const int count_;
  char* const ring_;
  bool holds_ = false;
  Position at_;
  const char* from_ = nullptr;  // of the lane, in block 0 of the tile
};

}  // namespace tcim_lite::cuda
