// Attention as a phase of decode. Each row and KV head is a pair whose keys are split over blocks and their warps.
// Each block makes the queries and the new keys it needs, the one that holds the row's own key writes it and its value,
// and the last to finish merges.
#pragma once

#include <type_traits>

#include "backends/cuda/decode/heads.cuh"
#include "backends/cuda/decode/keys.cuh"
#include "backends/cuda/kernels/quantize.cuh"

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
  char* codes;  // null: none are wanted
  int row;
};
// Elements `at` and at + 1 of them.
template <typename Shape>
__device__ __forceinline__ void store_results(const HeadsResult<Shape>& to, int at, const float2& values) {
  tell_unless_finite(values.x, to.odd);
  tell_unless_finite(values.y, to.odd);
  const __half low = to_half(values.x), high = to_half(values.y);
  if (to.handover.keeps()) *reinterpret_cast<__half2*>(to.y + at) = __halves2half2(low, high);
  if (to.handover.posts()) to.handover.y().post((to.column + at) / 2, low, high);
  if constexpr (Shape::kRows > 1 && !Shape::kHalf) {  // a warp has a group
    if (to.codes == nullptr) return;
    const __half2 both = __halves2half2(low, high);
    uint32_t codes[1];
    const float scale = quantize_words<32, 1>({*reinterpret_cast<const uint32_t*>(&both)}, codes);
    char* const group = to.codes + (to.column + at) / 64 * kCodesGroup;
    *reinterpret_cast<uint16_t*>(group + to.row * 64 + at % 64) = uint16_t(codes[0]);
    if (at % 64 != 0) return;
    reinterpret_cast<float*>(group + kMostRows * 64)[to.row] = activation_scale<Shape::kFormat>(scale);
  }
}

// The results of a KV head's query heads are the work of its block's warps: each has a part of a head, a lane kPairs
// pairs of its elements. Each warp finds the shares for itself, so where there are many heads for few warps, as in
// models with experts, it has more of a head.
template <typename Shape>
struct HeadParts {
  static constexpr int kPairs = Shape::kExperts ? 2 : 1, kOfAHead = kHeadDim / (64 * kPairs);
  using Words = std::conditional_t<kPairs == 2, float4, float2>;
  struct alignas(Words) Elements {
    float2 pairs[kPairs] = {};
  };

  // For each part of a warp: each(head, the lane's first element of it).
  template <typename Each>
  __device__ __forceinline__ static void visit(int heads, const Each& each) {
    const int lane = threadIdx.x % 32;
    for (int part = threadIdx.x / 32; part < heads * kOfAHead; part += Shape::kWarps)
      each(part / kOfAHead, (part % kOfAHead * 32 + lane) * 2 * kPairs);
  }
  __device__ __forceinline__ static void add(Elements& total, const Words& words, float share) {
    const auto* const pairs = reinterpret_cast<const float2*>(&words);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      total.pairs[i].x = fmaf(pairs[i].x, share, total.pairs[i].x);
      total.pairs[i].y = fmaf(pairs[i].y, share, total.pairs[i].y);
    }
  }
  __device__ __forceinline__ static void store(const HeadsResult<Shape>& to, int at, const Elements& total, float sum) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
      store_results(to, at + 2 * i, make_float2(total.pairs[i].x / sum, total.pairs[i].y / sum));
  }
};

// Merges what `active` blocks left for this KV head.
template <typename Shape>
__device__ __forceinline__ void merge_splits(const float* all, int heads, int active, const HeadsResult<Shape>& to) {
  using Parts = HeadParts<Shape>;
  using Words = typename Parts::Words;
  constexpr int kAtOnce = 16;
  const int lane = threadIdx.x % 32, stride = heads * kLeft;
  Parts::visit(heads, [&](int h, int at) {
    const float* const of_head = all + h * kLeft;
    typename Parts::Elements total;
    float most = -INFINITY, sum = 0;
    for (int base = 0; base < active; base += kAtOnce) {
      const int split = base + lane;
      const bool mine = lane < kAtOnce && split < active;
      const float2 rest = mine ? __ldcg(reinterpret_cast<const float2*>(of_head + split * stride + kHeadDim))
                               : make_float2(-INFINITY, 0);
      Words words[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        words[i] = {};
        if (base + i < active) words[i] = __ldcg(reinterpret_cast<const Words*>(of_head + (base + i) * stride + at));
      }
      const float now = fmaxf(most, warp_most(rest.x));
      const float weight = expf(rest.x - now), keep = expf(most - now);
      most = now;
      sum = fmaf(sum, keep, warp_sum(rest.y * weight));
      for (float2& pair : total.pairs) pair.x *= keep, pair.y *= keep;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) Parts::add(total, words[i], __shfl_sync(0xffffffffu, weight, i));
    }
    Parts::store(to, h * kHeadDim + at, total, sum);
  });
}

// What a block's warps left in shared memory, to `left`.
template <typename Shape>
__device__ __forceinline__ void gather_warps(AttentionShared<Shape>& s, int heads, int warps, float* left) {
  using Parts = HeadParts<Shape>;
  using Words = typename Parts::Words;
  const int lane = threadIdx.x % 32;
  Parts::visit(heads, [&](int h, int at) {
    const float own = lane < warps ? s.most[lane][h] : -INFINITY;
    const float most = warp_most(own);
    const float share = expf(own - most);
    const float sum = warp_sum(lane < warps ? s.sums[lane][h] * share : 0.0f);
    typename Parts::Elements total;
#pragma unroll 4
    for (int w = 0; w < warps; ++w)
      Parts::add(total, *reinterpret_cast<const Words*>(s.outputs[w][h] + at), __shfl_sync(0xffffffffu, share, w));
    *reinterpret_cast<Words*>(left + h * kLeft + at) = *reinterpret_cast<const Words*>(&total);
    if (at == 0) *reinterpret_cast<float2*>(left + h * kLeft + kHeadDim) = make_float2(most, sum);
  });
}

// A block with all keys of its row, once they have shares.
template <typename Shape>
__device__ __forceinline__ void finish_alone(AttentionShared<Shape>& s, int heads, int keys,
                                             const HeadsResult<Shape>& to) {
  constexpr bool kCodes = Shape::kRows > 1 && !Shape::kHalf;  // store_results() takes groups of 64 together
  const int thread = unhoisted(threadIdx.x), head = thread % 32 / 4;
  const int first = thread / 32 * kPiecesOfAWarp<Shape> * 8 + thread % 4 * 2;
  weigh_values(s, keys, [&](int p, const float2& pair) {
    if (head >= heads) return;
    if constexpr (kCodes) {
      *reinterpret_cast<float2*>(s.results[head] + first + 8 * p) = pair;
    } else {
      store_results(to, head * kHeadDim + first + 8 * p, pair);
    }
  });
  if constexpr (kCodes) {
    sync_warps<Shape>();
    HeadParts<Shape>::visit(heads, [&](int h, int at) {
      store_results(to, h * kHeadDim + at, *reinterpret_cast<const float2*>(s.results[h] + at));
    });
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
  sync_warps<Shape>();
  const auto result = [&] {
    const int column = unit.kv_head * heads * kDim;
    auto* const y = static_cast<__half*>(a.y) + int64_t(unit.row) * a.y_stride + column;
    return HeadsResult<Shape>{handover, column, y, args.odd, a.codes, unit.row};
  };
  if (unit.active == 1) {
    leave_shares(s, ring, unit, heads, a.scale);
    sync_warps<Shape>();
    return finish_alone(s, heads, unit.end, result());
  }
  if (unit.first_key(warp) < unit.end) attend_keys(s, ring, unit, heads, a.scale);
  sync_warps<Shape>();

  const int stride = heads * kLeft, pair = unit.row * args.kv_heads + unit.kv_head;
  float* all = args.partial + int64_t(pair) * args.splits * stride;
  gather_warps(s, heads, unit.warps, all + unit.split * stride);
  sync_warps<Shape>();
  if (threadIdx.x == 0) {
    unsigned before;
    // The last one makes it 0 again.
    asm volatile("atom.inc.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(args.arrived + pair), "r"(unit.active - 1)
                 : "memory");
    s.last = before == unsigned(unit.active - 1);
  }
  sync_warps<Shape>();
  if (s.last) merge_splits(all, heads, unit.active, result());
}

}  // namespace tcim_lite::cuda::decode
