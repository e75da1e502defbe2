// A ring that another warp fills, as the warp sees it that takes from it. The instructions that find and ask for the
// next chunks are then nobody's who computes.
#pragma once

#include <type_traits>

#include "backends/cuda/decode/gates.cuh"
#include "backends/cuda/decode/ring.cuh"

namespace tcim_lite::cuda::decode {

// What Ring has for the warp that takes.
template <typename Shape, int Stages>
class FetchedRing {
 public:
  static constexpr int kBytes = Ring<Shape, Stages>::kBytes;
  static constexpr bool kDeep = Ring<Shape, Stages>::kDeep;

  __device__ FetchedRing(RingGates<Stages>& gates, char* ring) : gates_(gates), ring_(ring) {}

  template <int Count>
  __device__ __forceinline__ void take_next() {
    held_ = 0;
    take(Count);
  }
  __device__ __forceinline__ void take(int count) {
#pragma unroll 1
    for (; count > 0; --count, ++held_) {
      const int at = taken_ + held_;
      gates_.full[at < Stages ? at : at - Stages].wait(at < Stages ? parity_ : parity_ ^ 1);
    }
    __syncwarp();
  }
  __device__ __forceinline__ char* held(int i) const {
    const int stage = taken_ + i;
    return ring_ + (stage < Stages ? stage : stage - Stages) * Ring<Shape, Stages>::kStageBytes;
  }
  __device__ __forceinline__ void give_up(int count) {
    __syncwarp();
    held_ -= count;
#pragma unroll 1
    for (; count > 0; --count) {
      if (threadIdx.x % 32 == 0) gates_.empty[taken_].arrive();
      if (++taken_ == Stages) taken_ = 0, parity_ ^= 1;
    }
  }
  __device__ __forceinline__ void give_up_all() {
    if (held_ > 0) give_up(held_);
  }

 private:
  RingGates<Stages>& gates_;
  char* const ring_;
  int taken_ = 0, held_ = 0;  // stages: the first that is or will be held, and how many are
  unsigned parity_ = 0;       // of how often the ring has been gone round
};

template <typename Shape>
using ShapeRing = std::conditional_t<Shape::kFetched, FetchedRing<Shape, kStages<Shape>>, Ring<Shape, kStages<Shape>>>;

}  // namespace tcim_lite::cuda::decode
