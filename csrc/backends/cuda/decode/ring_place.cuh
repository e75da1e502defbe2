// What the ring of copies needs to know of phases to come: where their weights, keys and values are.
#pragma once

#include "backends/cuda/decode/unit.cuh"
#include "backends/cuda/kernels/common.cuh"

namespace tcim_lite::cuda::decode {

constexpr int kKeyBytes = kHeadDim * 2;

// In shared memory: where a Linear's weights are, or the keys and values of the block's slot and KV head. Other phases
// have zeros.
struct RingPlace {
  struct Tiles {
    int count;
    int16_t groups;  // of 64 inputs
    int8_t blocks;
    int8_t chosen;  // LinearPhase::chosen, negative where it combines
  };
  union {
    const char* weights;
    char* keys;
  };
  union {
    Tiles tiles;
    char* values;
  };
};
// Apart from the places, whose padding would leave no room beside the rings of several rows.
struct RingMarks {
  bool meets;
  Phase::Kind kind;
};
__device__ __forceinline__ RingMarks marks_of(const Phase& phase) { return {phase.meets, phase.kind}; }
__device__ __forceinline__ RingPlace place_of(const Phase& phase, const ProgramArgs& args) {
  RingPlace place{};
  const AttentionPair pair = pair_of(args);
  if (has_weights_in_ring(phase.kind)) {
    const LinearPhase& linear = phase.linear;
    place.weights = static_cast<const char*>(linear.weights);
    place.tiles = {linear.tiles, int16_t(linear.inputs / 64), linear.blocks,
                   int8_t(linear.combines ? -linear.chosen : linear.chosen)};
  } else if (phase.kind == Phase::Kind::Attention && pair.exists) {
    void* const* caches = args.caches + phase.attention.caches + 2 * pair.slot;
    const int64_t at = int64_t(pair.kv_head) * args.context * kKeyBytes;
    place.keys = static_cast<char*>(caches[0]) + at;
    place.values = static_cast<char*>(caches[1]) + at;
  }
  return place;
}

}  // namespace tcim_lite::cuda::decode
