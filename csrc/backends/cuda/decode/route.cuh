// Which experts a row takes: the router, a Linear of few outputs, and the route, which each block computes for itself.
#pragma once

#include "backends/cuda/decode/linear.cuh"

namespace tcim_lite::cuda::decode {

// Packages have the router in the format of their head, which is 8 bits where the program's Linears have 4.
template <typename Shape>
using RouterShape =
    KernelShape<Shape::kHalf ? WeightFormat::LinearF16 : WeightFormat::LinearW8, Shape::kRows, Shape::kWarps>;

// acc += 16 outputs times a group of 64 inputs; `from` is the group in the lane's first row of float16 weights, or else
// the group's item.
template <typename Router>
__device__ __forceinline__ void multiply_from_memory(float (&acc)[4], const char* from, int row_bytes, const char* x) {
  if constexpr (Router::kHalf) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 a = __ldg(reinterpret_cast<const uint4*>(from + half * 64));
      const uint4 b = __ldg(reinterpret_cast<const uint4*>(from + 8 * row_bytes + half * 64));
      const uint4 v = *reinterpret_cast<const uint4*>(x + half * OneRow<Router>::kPartBytes + 16 * t);
      mma_half(acc, a.x, b.x, a.y, b.y, v.x, v.y);
      mma_half(acc, a.z, b.z, a.w, b.w, v.z, v.w);
    }
  } else {
    const char* const item[1] = {from};
    multiply_chunks<Router, false>(&acc, item, 1, x);
  }
}

// `ready` returns when x may be read. A block has one tile of 16 outputs at most, whose weights come into the L2
// meanwhile; they do not pass the ring, whose stages are of the program's format.
template <typename Shape, typename Ready>
__device__ __forceinline__ void compute_router(const LinearPhase& linear, const Handover<Shape>& handover, char* rows,
                                               float* scratch, TileSums<Shape>& sums, const Ready& ready) {
  using Router = RouterShape<Shape>;
  using Stage = RingStage<Router::kFormat>;
  const int tile = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  if (tile >= linear.tiles) return ready();
  const int groups = linear.inputs / 64, row_bytes = groups * 128;
  const Handover<Router> to{handover.args, handover.phase, handover.run, handover.p};
  OneRow<Router> prepared(linear, to, 1, rows, nullptr);
  const int begin = prepared.begin(), end = prepared.end();
  const char* from = static_cast<const char*>(linear.weights) + int64_t(tile) * groups * Stage::kItem;
  from += Router::kHalf ? g * row_bytes + t * 16 : 0;
  {
    const char* first = from - (Router::kHalf ? t * 16 : 0) + begin * Stage::kStep;
    // Of float16 a lane fetches its row and that 8 further on, with three others.
    const int each = Router::kHalf ? 4 : 32, own = Router::kHalf ? t : lane;
    for (int at = own * 128; at < (end - begin) * Stage::kStep; at += each * 128) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(first + at));
      if (Router::kHalf) asm volatile("prefetch.global.L2 [%0];" ::"l"(first + 8 * row_bytes + at));
    }
  }
  const int output = tile * 16 + lane % 16;
  const bool biased = warp == 0 && linear.bias != nullptr && output < linear.outputs;
  const float bias = biased ? linear.bias[output] : 0.0f;
  ready();
  prepared.start(scratch, [](bool) {});
  float acc[4] = {};
#pragma unroll 4
  for (int group = begin; group < end; ++group)
    multiply_from_memory<Router>(acc, from + group * Stage::kStep, row_bytes,
                                 rows + (group - begin) * OneRow<Router>::kGroupBytes);
  auto& of_tile = sums.values[0];
  if (t == 0) of_tile[warp][0][g] = acc[0], of_tile[warp][0][g + 8] = acc[2];
  __syncthreads();
  if (warp == 0) finish_tile<Shape, 1>(linear, handover, end_of(linear, handover), of_tile, 0, tile, bias, Residual());
}

struct RouteShared {
  __align__(16) uint32_t keys[kMostExperts];
  __half logits[kMostExperts];
};

// Larger for a larger logit and, of equal ones, for a lower id; NaN is below everything. No two are equal, and none 0.
__device__ __forceinline__ uint32_t route_key(__half logit, int id) {
  uint32_t bits = __half_as_ushort(logit);
  if ((bits & 0x7fff) == 0) bits = 0;
  const uint32_t ordered = bits >> 15 ? ~bits & 0xffff : bits | 0x8000;
  return (__hisnan(logit) ? 0u : ordered) << 16 | (0xffff - uint32_t(id));
}

// All threads; the ids are there when it returns. An expert's rank is the number of experts before it.
template <typename Shape>
__device__ __forceinline__ void choose_experts(const RoutePhase& route, RouteShared& s, ChosenExperts<true>& chosen) {
  const int padded = (route.experts + 3) / 4 * 4;
  for (int id = threadIdx.x; id < padded; id += Shape::kThreads) {
    uint32_t key = 0;
    if (id < route.experts) {
      s.logits[id] = __ushort_as_half(__ldcg(static_cast<const uint16_t*>(route.logits) + id));
      key = route_key(s.logits[id], id);
    }
    s.keys[id] = key;
  }
  __syncthreads();
  for (int id = threadIdx.x; id < route.experts; id += Shape::kThreads) {
    const uint32_t own = s.keys[id];
    int rank = 0;
#pragma unroll 8
    for (int i = 0; i < padded / 4; ++i) {
      const uint4 four = reinterpret_cast<const uint4*>(s.keys)[i];
      rank += (four.x > own) + (four.y > own) + (four.z > own) + (four.w > own);
    }
    if (rank < route.chosen) chosen.ids[rank] = id;
  }
  __syncthreads();
}

// One warp. In the order of MoERoute by itself (kernels/moe.cu).
__device__ __forceinline__ void find_shares(const RoutePhase& route, const RouteShared& s,
                                            ChosenExperts<true>& chosen) {
  const int lane = threadIdx.x % 32;
  const float largest = __half2float(s.logits[chosen.ids[0]]);
  const auto power = [&](int id) { return expf(__half2float(s.logits[id]) - largest); };
  const float share = lane < route.chosen ? power(chosen.ids[lane]) : 0.0f;
  float whole = warp_sum(share);
  if (route.softmax_first && !route.normalise) {
    float of_all = 0;
    for (int id = lane; id < route.experts; id += 32) of_all += power(id);
    whole = warp_sum(of_all);
  }
  if (lane < route.chosen) chosen.shares[lane] = rounded<__half>(share / whole);
}

}  // namespace tcim_lite::cuda::decode
