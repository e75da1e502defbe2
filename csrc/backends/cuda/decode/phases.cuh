// What computes a phase, by its kind.
#pragma once

#include "backends/cuda/decode/attention.cuh"
#include "backends/cuda/decode/expert_tiles.cuh"
#include "backends/cuda/decode/fetched_ring.cuh"
#include "backends/cuda/decode/linear.cuh"
#include "backends/cuda/decode/route.cuh"
#include "backends/cuda/decode/row_phases.cuh"

namespace tcim_lite::cuda::decode {

// What a phase has to itself; the rings lie before it.
template <typename Shape>
union PhaseShared {
  struct {
    TileSums<Shape> sums;
    __align__(16) float scratch[Shape::kRows * Shape::kWarps];
    __align__(16) char rows[Shape::kWarps][LinearInputs<Shape>::kBytes];
  } linear;
  AttentionShared<Shape> attention;
  RouteShared route;
};

// Shared memory of the kernel.
template <typename Shape>
struct KernelShared {
  __align__(128) char rings[Shape::kWarps][ShapeRing<Shape>::kBytes];
  PhaseShared<Shape> own;
  RingPlace places[kMostPhases];
  RingMarks marks[kMostPhases];
  Phase phases[2];  // this one and the next
  AttentionUnit unit;
  ChosenExperts<Shape::kExperts> experts;
  LookAhead ahead;  // of the last warp
  RingGates<kStages<Shape>> gates[Shape::kFetched ? Shape::kWarps : 1];
};

// Whether the block asks for the mail of the phase before it refills its ring: its request would queue up behind those
// of the refill.
template <typename Shape>
__device__ __forceinline__ bool asks_first(const Phase& phase) {
  return Shape::kLooksAhead && phase.kind == Phase::Kind::Linear && phase.mailed &&
         int(blockIdx.x) < phase.linear.tiles;
}

// ready() waits for what the phase reads. `args` and `phase` are those of the hand-over: with more than one way to get
// at them, or all of these in a struct, the compiler makes other code, some of which spills.
template <typename Shape, typename Ready>
__device__ __forceinline__ void compute_phase(const ProgramArgs& args, const Phase& phase,
                                              const Handover<Shape>& handover, int rows, KernelShared<Shape>& s,
                                              ShapeRing<Shape>& ring, const Rotation& rotation, const Ready& ready) {
  const int p = handover.p;
  if (phase.kind == Phase::Kind::Attention) {
    attend(args, phase.attention, s.places[p], ring, s.own.attention, s.unit, rotation, handover, ready);
  } else if (Shape::kExperts && phase.kind == Phase::Kind::Router) {
    auto& own = s.own.linear;
    if constexpr (Shape::kExperts)
      compute_router(phase.linear, handover, own.rows[threadIdx.x / 32], own.scratch, own.sums, ready);
  } else if (Shape::kExperts && phase.kind == Phase::Kind::Route) {
    ready();
    if constexpr (Shape::kExperts) {
      choose_experts<Shape>(phase.route, s.own.route, s.experts);
      ring.pass_route(p);
      if (threadIdx.x < 32) find_shares(phase.route, s.own.route, s.experts);
    }
  } else if (phase.kind != Phase::Kind::Linear) {
    ready();
    compute_rows<Shape>(phase, rows);
  } else {
    const LinearPhase& linear = phase.linear;
    auto& own = s.own.linear;
    static_assert(sizeof(own.sums.values[0][0]) >= sizeof(float) * LinearInputs<Shape>::kNormFloats);
    float* norm = own.sums.values[0][threadIdx.x / 32][0];  // no sums before the rows are there
    LinearInputs<Shape> prepared(linear, handover, rows, own.rows[threadIdx.x / 32], norm);
    ready();
    if (Shape::kRows > 1 || int(blockIdx.x) < linear.tiles) {
      prepared.start(own.scratch, [&](bool missing) {
        if constexpr (Shape::kLooksAhead) {
          if (!missing) return ring.give_up_all();
          if (threadIdx.x / 32 == Shape::kWarps - 1) ring.look_ahead(s.ahead);
        }
      });
      const auto multiply = [&](auto blocks) {
        if constexpr (Shape::kExperts) {
          multiply_expert_tiles<Shape, blocks()>(linear, handover, ring, prepared, own.sums, s.experts);
        } else {
          multiply_tiles<Shape, blocks()>(linear, handover, rows, ring, prepared, own.sums);
        }
      };
      if (linear.blocks == 2) {
        multiply(std::integral_constant<int, 2>());
      } else {
        multiply(std::integral_constant<int, 1>());
      }
    }
  }
}

}  // namespace tcim_lite::cuda::decode
