// Attention as a phase of decode. Each row and KV head is a pair whose keys are split over blocks and their warps.
// Each block makes the queries and the new keys it needs, the one that holds the row's own key writes it and its value,
// and the last to finish merges.
#pragma once

#include "backends/cuda/decode/heads.cuh"
#include "backends/cuda/decode/keys.cuh"

namespace tcim_lite::cuda::decode {

__device__ __forceinline__ float warp_most(float v) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, lane));
  return v;
}

// Where a KV head's query heads leave their results.
template <typename Shape>
struct HeadsResult {
  const Handover<Shape>& handover;
  int column;
  __half* y;
  int* odd;
};
// Element `at` of them.
template <typename Shape>
__device__ __forceinline__ void store_result(const HeadsResult<Shape>& to, int at, float value) {
  tell_unless_finite(value, to.odd);
  const __half own = to_half(value), next = __shfl_down_sync(0xffffffffu, own, 1);
  if (to.handover.keeps()) to.y[at] = own;
  if (to.handover.posts() && at % 2 == 0) to.handover.y().post((to.column + at) / 2, own, next);
}

// Merges what `active` blocks left for this KV head. A warp has one head at a time.
template <typename Shape>
__device__ __forceinline__ void merge_splits(const float* all, int heads, int active, const HeadsResult<Shape>& to) {
  constexpr int kDim = kHeadDim, kAtOnce = 16;
  const int lane = threadIdx.x % 32, stride = heads * (kDim + 2);
  for (int at = threadIdx.x; at < heads * kDim; at += Shape::kThreads) {
    const float* values = all + at / kDim * (kDim + 2) + at % kDim;
    const float* rests = all + at / kDim * (kDim + 2) + kDim;
    float most = -INFINITY, sum = 0, total = 0;
    for (int base = 0; base < active; base += kAtOnce) {
      const int split = base + lane;
      const bool mine = lane < kAtOnce && split < active;
      const float2 rest =
          mine ? __ldcg(reinterpret_cast<const float2*>(rests + split * stride)) : make_float2(-INFINITY, 0);
      float value[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) value[i] = base + i < active ? __ldcg(values + (base + i) * stride) : 0.0f;
      const float now = fmaxf(most, warp_most(rest.x));
      const float weight = expf(rest.x - now), keep = expf(most - now);
      most = now;
      sum = fmaf(sum, keep, warp_sum(rest.y * weight));
      total *= keep;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) total = fmaf(value[i], __shfl_sync(0xffffffffu, weight, i), total);
    }
    store_result(to, at, total / sum);
  }
}

// What a block's warps left in shared memory: the result if the block is alone, else to `left`.
template <typename Shape>
__device__ __forceinline__ void gather_warps(AttentionShared<Shape>& s, int heads, int warps, bool alone,
                                             const HeadsResult<Shape>& to, float* left) {
  constexpr int kDim = kHeadDim;
  const int lane = threadIdx.x % 32;
  for (int at = threadIdx.x; at < heads * kDim; at += Shape::kThreads) {  // whole warps, of one head each
    const int h = at / kDim, d = at % kDim;
    const float own = lane < warps ? s.most[lane][h] : -INFINITY;
    const float most = warp_most(own);
    const float share = expf(own - most);
    const float sum = warp_sum(lane < warps ? s.sums[lane][h] * share : 0.0f);
    float total = 0;
    for (int w = 0; w < warps; ++w) total = fmaf(s.outputs[w][h][d], __shfl_sync(0xffffffffu, share, w), total);
    if (alone) {
      store_result(to, at, total / sum);
    } else {
      left[h * (kDim + 2) + d] = total;
      if (d == 0) *reinterpret_cast<float2*>(left + h * (kDim + 2) + kDim) = make_float2(most, sum);
    }
  }
}

// `ready` returns when q, k and v may be read.
template <typename Shape, typename Ring, typename Ready>
__device__ __forceinline__ void attend(const ProgramArgs& args, const AttentionPhase& a, const RingPlace& place,
                                       Ring& ring, AttentionShared<Shape>& s, const AttentionUnit& unit,
                                       const Rotation& kept, const Handover<Shape>& handover, const Ready& ready) {
  constexpr int kDim = kHeadDim;
  if (!unit.works) return ready();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, heads = args.heads_per_kv;
  const auto row_of = [&](const void* part, int token) {  // of the projection, the KV head's columns
    return static_cast<const __half*>(part) + int64_t(unit.slot * args.slot_rows + token) * a.x_stride +
           unit.kv_head * kDim;
  };

  // A warp makes a query or the key of a token: head `made`, those of the keys come after the queries.
  // The last block makes all keys of the run even if it does not need them: everything that is posted must be read.
  const auto makes_key = [&](int made) {
    const int token = made - heads;
    return token >= 0 && token <= unit.token && unit.valid + token >= unit.begin &&
           (unit.valid + token < unit.end || unit.split + 1 == unit.active);
  };
  const float* norm = nullptr;
  float2 weight[2] = {};
  const auto load_norm = [&](int made) {
    norm = made < heads ? a.q_norm : makes_key(made) ? a.k_norm : nullptr;
    if (norm == nullptr) return;
    weight[0] = reinterpret_cast<const float2*>(norm)[lane];
    weight[1] = reinterpret_cast<const float2*>(norm)[lane + 32];
  };
  const Rotation rotation = Shape::kRows == 1 ? kept : load_rotation(args, unit);
  const auto make = [&](int made) {
    if (made < heads) {
      const int column = (unit.kv_head * heads + made) * kDim;
      const auto* q = static_cast<const __half*>(a.q) + int64_t(unit.row) * a.x_stride;
      Head head[1];
      take_heads(handover, {{a.q_column + column, q + column}}, head);
      const Head query = make_head(head[0], norm != nullptr, weight, a.q_epsilon, rotation);
      auto* const words = reinterpret_cast<__half2*>(s.queries[made]);
      words[place_of_query(lane)] = query.low;
      words[place_of_query(lane + 32)] = query.high;
    } else if (makes_key(made)) {
      const int column = unit.kv_head * kDim, token = made - heads;
      Head head[2];
      take_heads(handover, {{a.k_column + column, row_of(a.k, token)}, {a.v_column + column, row_of(a.v, token)}},
                 head);
      const Head value = head[1], key = make_head(head[0], norm != nullptr, weight, a.k_epsilon, rotation);
      store_head(s.fresh_keys[token], key);
      store_head(s.fresh_values[token], value);
      if (unit.writes && token == unit.token) {
        const int64_t at = int64_t(unit.valid + token) * kDim;
        store_head(reinterpret_cast<__half*>(place.keys) + at, key);
        store_head(reinterpret_cast<__half*>(place.values) + at, value);
      }
    }
  };
  load_norm(warp);  // does not wait
  ready();
  if constexpr (Shape::kMostHeads < Shape::kWarps) {
    make(warp);
  } else {  // as many queries as warps: the first makes the key, too
#pragma unroll 1
    for (int made = warp;; load_norm(made)) {
      make(made);
      made += Shape::kWarps;
      if (made > heads) break;
    }
  }
  __syncthreads();
  if (unit.first_key(warp) < unit.end) attend_keys(s, ring, unit, heads, a.scale);
  __syncthreads();

  const int stride = heads * (kDim + 2), pair = unit.row * args.kv_heads + unit.kv_head;
  float* all = args.partial + int64_t(pair) * args.splits * stride;
  const int column = unit.kv_head * heads * kDim;
  const HeadsResult<Shape> to{handover, column, static_cast<__half*>(a.y) + int64_t(unit.row) * a.y_stride + column,
                              args.odd};
  gather_warps(s, heads, unit.warps, unit.active == 1, to, all + unit.split * stride);
  if (unit.active == 1) return;
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned before;
    // The last one makes it 0 again.
    asm volatile("atom.inc.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(args.arrived + pair), "r"(unit.active - 1)
                 : "memory");
    s.last = before == unsigned(unit.active - 1);
  }
  __syncthreads();
  if (s.last) merge_splits(all, heads, unit.active, to);
}

}  // namespace tcim_lite::cuda::decode
