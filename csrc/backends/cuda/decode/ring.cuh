// A warp's ring of asynchronous copies. It fetches what does not depend on the computation, weights and rows of the
// caches, in the order in which the warp reads them, and runs ahead by the length of the ring, also across the borders
// of phases.
#pragma once

#include "backends/cuda/decode/experts.cuh"
#include "backends/cuda/decode/gates.cuh"
#include "backends/cuda/decode/ring_place.cuh"
#include "backends/cuda/decode/shape.cuh"
#include "backends/cuda/decode/unit.cuh"
#include "backends/cuda/kernels/common.cuh"
#include "backends/cuda/kernels/mma.cuh"

namespace tcim_lite::cuda::decode {

// Groups of 64 inputs that a warp multiplies: [share(warp), share(warp + 1)).
template <typename Shape>
__device__ __forceinline__ int share_begin(int groups, int warp) {
  return int(unsigned(groups * warp) / Shape::kWarps);
}

// The block's next tile that it has not asked to be in the L2.
struct LookAhead {
  int phase, tile;
};

template <typename Shape, int Stages>
class Ring {
  using Stage = RingStage<Shape::kFormat>;

 public:
  static constexpr int kStageBytes = Stage::kItem * Stage::kChunk;
  static_assert(kStageBytes >= 8 * kKeyBytes);
  static constexpr int kBytes = kStageBytes * Stages;         // of a warp
  static constexpr bool kDeep = Stages > 4 || !Shape::kHalf;  // enough is under way while two chunks are held

  using Experts = ChosenExperts<Shape::kExperts>;

  __device__ Ring(const RingPlace* places, const RingMarks* marks, int count, const AttentionUnit& unit,
                  const Experts& experts, char* ring)
      : places_(places), marks_(marks), count_(count), unit_(unit), experts_(experts), ring_(ring), end_(count) {
    if (next_phase()) seek();
    if constexpr (!Shape::kFetched) {
#pragma unroll 1
      for (int i = 0; i < Stages; ++i) fetch(i);
    }
  }

  // By a warp that only fetches, for another (fetched_ring.cuh): all there is.
  __device__ __forceinline__ void serve(RingGates<Stages>& gates) {
    bool again = false;
    unsigned parity = 1;
    int stage = 0;
#pragma unroll 1
    while (phase_ < count_) {
      if (again) gates.empty[stage].wait(parity);
      fetch(stage);
      gates.full[stage].arrive_after_copies();
      if (++stage == Stages) stage = 0, again = true, parity ^= 1;
    }
    wait_for_copies<0>();
  }

  // The ring does not run ahead over a route, since weights depend on it. In phase `p`, which is one: goes on. All that
  // it had fetched has been given up by then.
  __device__ __forceinline__ void pass_route(int p) {
    phase_ = p;
    end_ = count_;
    if (next_phase()) seek();
#pragma unroll 1
    for (int i = 0; i < Stages; ++i) {
      fetch(taken_);
      taken_ = taken_ + 1 == Stages ? 0 : taken_ + 1;
    }
  }

  // The next chunks, one or two, until they are given up; none may be held. Order: phase, tile, groups, block of the
  // tile; of attention 16 keys, then their values.
  template <int Count>
  __device__ __forceinline__ void take_next() {
    static_assert(Count <= 2 && Count < Stages);
    wait_for_copies<Stages - Count>();
    __syncwarp();
    held_ = Count;
  }
  // One or two more; four may be held.
  __device__ __forceinline__ void take(int count) {
    static_assert(Stages >= 4);
    held_ += count;
    if (held_ > 2) {
      wait_for_copies<Stages - 4>();
    } else {
      wait_for_copies<Stages - 2>();
    }
    __syncwarp();
  }
  __device__ __forceinline__ char* held(int i) const {
    const int stage = taken_ + i;
    return ring_ + (stage < Stages ? stage : stage - Stages) * kStageBytes;
  }

  // Refills the first `count` held stages with the next chunks.
  __device__ __forceinline__ void give_up(int count) {
    __syncwarp();
    held_ -= count;
#pragma unroll 1
    for (; count > 0; --count) {
      fetch(taken_);
      taken_ = taken_ + 1 == Stages ? 0 : taken_ + 1;
    }
  }
  __device__ __forceinline__ void give_up_all() {
    if (held_ > 0) give_up(held_);
  }

  // Asks for one of the block's next tiles to be in the L2, the first of which no ring has a part. By one warp, while
  // it waits: rings are full then, and the memory would stand still.
  __device__ __forceinline__ void look_ahead(LookAhead& next) const {
    static_assert(Shape::kLooksAhead);
    constexpr int kPhases = 2;           // behind that of the ring's next chunk
    constexpr int kMostBytes = 1 << 17;  // of a tile: that is the most it was tried with
    if (lane() != 0) return;
    int phase = phase_, tile = blocks_ > 0 ? tile_ + int(gridDim.x) : int(blockIdx.x);
    if (next.phase > phase || (next.phase == phase && next.tile > tile)) phase = next.phase, tile = next.tile;
    while (phase < count_ && (!has_weights_in_ring(marks_[phase].kind) || tile >= places_[phase].tiles.count)) {
      ++phase;
      tile = int(blockIdx.x);
    }
    if (phase >= count_ || phase > phase_ + kPhases) return;
    const RingPlace& place = places_[phase];
    const int bytes = place.tiles.blocks * place.tiles.groups * Stage::kItem;
    prefetch(place.weights + int64_t(tile) * bytes, min(bytes, kMostBytes));
    next = {phase, tile + int(gridDim.x)};
  }

 private:
  __device__ static int warp() { return int(threadIdx.x / 32u) % Shape::kWarps; }  // whose ring it is
  __device__ static int lane() { return int(threadIdx.x % 32u); }

  __device__ __forceinline__ void fetch(int to) {
    if (phase_ < (Shape::kExperts ? end_ : count_)) {
      char* const stage = ring_ + to * kStageBytes;
      const bool more = blocks_ == 0 ? fetch_rows(stage) : fetch_items(stage + lane() * 16);
      if (!more && next_phase()) seek();
    }
    if (!Shape::kFetched) commit_copies();
  }

  // Whether there is more of the phase.
  __device__ __forceinline__ bool fetch_items(char* stage) {
    const int items = min(Stage::kChunk, last_ - group_);
    const char* from = from_ + block_ * groups_ * Stage::kItem;
    const uint32_t to = shared_address(stage);
    if constexpr (Shape::kHalf) {
#pragma unroll
      for (int part = 0; part < 4; ++part)
        copy_async_once(to + part * 512, from + part % 2 * groups_ * (64 * 2 * 8) + part / 2 * 64);
    } else {
      constexpr int kPieces = Stage::kItem / 16, kFull = Stage::kChunk * kPieces;  // of 16 bytes
      if (items == Stage::kChunk) {
        static_assert(kFull % 32 != 0 && 32 % (kFull % 32) == 0);
        copy_pieces<0, kFull / 32 * 32>(to, from);
        // Several lanes copy the same of the rest: equal bytes, and no branch.
        const int again = unhoisted(lane()) / (kFull % 32) * (kFull % 32) * 16;
        copy_async_once<kFull / 32 * 512>(to - again, from - again);
      } else {
        const int mine = items * kPieces - lane();
#pragma unroll
        for (int first = 0; first < kFull; first += 32) {
          if (first < mine) copy_async_once(to + first * 16, from + first * 16);
        }
      }
    }
    if (++block_ < blocks_) return true;
    block_ = 0;
    group_ += Stage::kChunk;
    from_ += Stage::kChunk * Stage::kStep;
    if (group_ < last_) return true;
    tile_ += int(gridDim.x);
    if (tile_ >= places_[phase_].tiles.count) return false;
    seek();
    return true;
  }

  // Pieces First + lane, 32 further on and so on.
  template <int First, int End>
  __device__ __forceinline__ static void copy_pieces(uint32_t to, const char* from) {
    copy_async_once<First * 16>(to, from);
    if constexpr (First + 32 < End) copy_pieces<First + 32, End>(to, from);
  }

  // Eight rows of 16 keys, or of their values; the rest of less than eight is zero. Piece p of row r lies at p ^ r, so
  // that eight rows' pieces lie in different banks. Whether there is more of the phase.
  __device__ __forceinline__ bool fetch_rows(char* stage) {
    const int halves = last_ - group_ > 8 ? 2 : 1, piece = lane() % 16, row = lane() / 16;
    const bool values = block_ >= halves;
    const int first = group_ + 8 * (values ? block_ - halves : block_) + row;
    const char* from =
        (values ? places_[phase_].values : places_[phase_].keys) + int64_t(first) * kKeyBytes + piece * 16;
    const uint32_t to = shared_address(stage);
    const int there = min(last_, unit_.valid) - first;  // what is of this run comes from elsewhere
#pragma unroll
    for (int i = 0; i < 8; i += 2)
      copy_async_once(to + (row + i) * kKeyBytes + (piece ^ (row + i)) * 16, from + i * kKeyBytes, i < there ? 16 : 0);
    if (++block_ < 2 * halves) return true;
    block_ = 0;
    group_ += 16;
    return group_ < last_;
  }

  // Whether what comes next is a Linear's, to be sought.
  __device__ __forceinline__ bool next_phase() {
    while (++phase_ < count_) {
      if (Shape::kExperts && marks_[phase_].kind == Phase::Kind::Route) {
        end_ = phase_;
        return false;
      }
      if (marks_[phase_].kind == Phase::Kind::Attention) {
        blocks_ = 0;
        group_ = unit_.first_key(warp());
        last_ = unit_.end_key(warp());
        if (group_ < last_) return false;
        continue;
      }
      const RingPlace::Tiles tiles = places_[phase_].tiles;
      groups_ = tiles.groups;
      blocks_ = tiles.blocks;
      last_ = share_end(tiles.chosen);
      tile_ = int(blockIdx.x);
      if (first_group(tiles.chosen) < last_ && tile_ < tiles.count) return true;
    }
    return false;
  }

  __device__ __forceinline__ int first_group(int chosen) const {
    if (Shape::kExperts && chosen < 0) return expert_share<Shape>(groups_, -chosen, warp()).begin;
    return share_begin<Shape>(groups_, warp());
  }
  __device__ __forceinline__ int share_end(int chosen) const {
    if (Shape::kExperts && chosen < 0) return expert_share<Shape>(groups_, -chosen, warp()).end;
    return share_begin<Shape>(groups_, warp() + 1);
  }
  __device__ __forceinline__ int tile_in_weights() const {
    if constexpr (Shape::kExperts) {
      const RingPlace::Tiles tiles = places_[phase_].tiles;
      if (tiles.chosen > 0) return tile_ + tiles_to_expert(experts_, tile_, tiles.count, tiles.chosen);
      if (tiles.chosen < 0)
        return tile_ + experts_.ids[expert_share<Shape>(groups_, -tiles.chosen, warp()).rank] * tiles.count;
    }
    return tile_;
  }

  __device__ __forceinline__ void seek() {
    group_ = first_group(Shape::kExperts ? places_[phase_].tiles.chosen : 0);
    from_ =
        places_[phase_].weights + int64_t(tile_in_weights()) * blocks_ * groups_ * Stage::kItem + group_ * Stage::kStep;
    if constexpr (Shape::kHalf) {
      from_ += lane() / 4 * groups_ * 128 + lane() % 4 * 16;
    } else {
      from_ += lane() * 16;
    }
  }

  const RingPlace* const places_;
  const RingMarks* const marks_;
  const int count_;
  const AttentionUnit& unit_;
  const Experts& experts_;
  char* const ring_;
  int end_;                   // phases up to here may be fetched: all, or those before the next route
  int taken_ = 0, held_ = 0;  // stages: the first that is or will be held, and how many are
  // What is fetched next; the same in all lanes of a warp. Of attention blocks are 0, groups keys.
  int phase_ = -1, tile_ = 0, block_ = 0, group_ = 0;
  int groups_ = 0, blocks_ = 1, last_ = 0;
  const char* from_ = nullptr;  // of the lane, in block 0 of the tile
};

// Several rows: what a fifth stage would take is worth more as L1, through which they are read.
template <typename Shape>
constexpr int kStages = (Shape::kRows > 1 ? 4 : 5) * kMostWarps / Shape::kWarps;

}  // namespace tcim_lite::cuda::decode
