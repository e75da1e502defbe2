// Attention as a phase of a chain. Each row and KV head is a pair whose keys are split over blocks and their warps, 16
// keys a warp at a time. Each block makes the queries and the new keys it needs, the one that holds the row's own key
// writes it and its value, and the last to finish merges.
#pragma once

#include "backends/cuda/kernels/chain_keys.cuh"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda {

// What a block does in every attention of a run.
struct ChainUnit {
  bool works, writes;  // the row's key and value
  int row, kv_head, slot, token;
  int valid;          // keys from here on are of this run
  int begin, end;     // keys
  int split, active;  // of so many with keys
};

__device__ __forceinline__ ChainUnit unit_of(const ChainArgs& args) {
  ChainUnit unit{};
  if (args.slots == 0) return unit;
  const int pair = int(blockIdx.x) / args.splits;
  unit.split = int(blockIdx.x) - pair * args.splits;
  unit.row = pair / args.kv_heads;
  unit.kv_head = pair - unit.row * args.kv_heads;
  if (unit.row >= args.rows) return unit;
  unit.slot = unit.row / args.slot_rows;
  unit.token = unit.row - unit.slot * args.slot_rows;
  unit.valid = *args.valid[unit.slot];
  const int own = unit.valid + unit.token, keys = min(own + 1, args.context);
  const int chunk = ((keys + args.splits - 1) / args.splits + 15) / 16 * 16;
  unit.active = (keys + chunk - 1) / chunk;
  unit.begin = unit.split * chunk;
  unit.end = min(unit.begin + chunk, keys);
  unit.works = unit.begin < unit.end;
  unit.writes = unit.works && own >= unit.begin && own < unit.end && unit.token < *args.current[unit.slot];
  return unit;
}

// Of elements lane and lane + 32 of a warp's head. Warps make a query each, then a key each of the run's tokens.
struct ChainRotation {
  bool wanted;
  float cos[2], sin[2];
};

__device__ __forceinline__ ChainRotation load_rotation(const ChainArgs& args, const ChainUnit& unit) {
  ChainRotation r{args.cos != nullptr, {}, {}};
  if (!r.wanted) return r;
  const int warp = threadIdx.x / 32, heads = args.heads_per_kv;
  const int position = unit.valid + (warp < heads ? unit.token : warp - heads);
  const int64_t at = int64_t(min(position, args.table_rows - 1)) * (kChainHeadDim / 2) + threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    r.cos[j] = __half2float(static_cast<const __half*>(args.cos)[at + 32 * j]);
    r.sin[j] = __half2float(static_cast<const __half*>(args.sin)[at + 32 * j]);
  }
  return r;
}

// A head in a warp: lane holds elements lane + 32 j. Norm, then RoPE, each rounded.
__device__ __forceinline__ void make_chain_head(const __half* x, bool norm, const float (&weight)[4], float epsilon,
                                                const ChainRotation& rotation, __half* to) {
  const int lane = threadIdx.x % 32;
  float v[4], sum = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    v[j] = __half2float(__ldcg(x + lane + 32 * j));
    sum = fmaf(v[j], v[j], sum);
  }
  if (norm) {
    const float inverse = inverse_root(fmaf(warp_sum(sum), 1.0f / kChainHeadDim, epsilon));
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = rounded<__half>(v[j] * inverse * weight[j]);
  }
  if (rotation.wanted) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float x1 = v[j], x2 = v[j + 2];
      v[j] = rounded<__half>(fmaf(-x2, rotation.sin[j], x1 * rotation.cos[j]));
      v[j + 2] = rounded<__half>(fmaf(x1, rotation.sin[j], x2 * rotation.cos[j]));
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) to[lane + 32 * j] = __float2half_rn(v[j]);
}

__device__ __forceinline__ float warp_most(float v) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, lane));
  return v;
}

// A KV head's element threadIdx.x of its query heads' results: to y, or with the others to the row's codes.
struct HeadsResult {
  __half* y;
  char* codes;  // null: to y. Of the first group of the KV head
  int row;
  float code_scale;
};
__device__ __forceinline__ void store_result(const HeadsResult& to, ChainAttentionShared& s, int heads, float value) {
  if (to.codes == nullptr) return store(to.y + threadIdx.x, value);
  __half* const all = s.queries[0];  // not needed any more
  store(all + threadIdx.x, value);
  asm volatile("bar.sync 1, %0;" ::"r"(heads * kChainHeadDim) : "memory");
  if (threadIdx.x >= 32) return;
  const int lane = threadIdx.x;
  const auto* mine = reinterpret_cast<const uint4*>(all + 16 * lane);
  const uint4 raw[2] = {mine[0], mine[1]};
  uint4 codes;
  const float scale = quantize_halves(raw, codes) * to.code_scale;
  if (lane * 16 >= heads * kChainHeadDim) return;
  char* const group = to.codes + lane / 4 * kCodesGroup;
  *reinterpret_cast<uint4*>(group + to.row * 64 + lane % 4 * 16) = codes;
  if (lane % 4 == 0) reinterpret_cast<float*>(group + kMostChainRows * 64)[to.row] = scale;
}

// Merges what `active` blocks left for this KV head. Each warp has one head.
__device__ __forceinline__ void merge_splits(const float* all, int heads, int active, ChainAttentionShared& s,
                                             const HeadsResult& to) {
  constexpr int kDim = kChainHeadDim, kAtOnce = 16;
  if (int(threadIdx.x) >= heads * kDim) return;
  const int lane = threadIdx.x % 32, h = threadIdx.x / kDim, stride = heads * (kDim + 2);
  const float* values = all + h * (kDim + 2) + threadIdx.x % kDim;
  const float* rests = all + h * (kDim + 2) + kDim;
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
  store_result(to, s, heads, total / sum);
}

// What a block's warps left in shared memory: the result if the block is alone, else to `at`.
__device__ __forceinline__ void gather_warps(ChainAttentionShared& s, int heads, int warps, bool alone,
                                             const HeadsResult& to, float* at) {
  constexpr int kDim = kChainHeadDim;
  if (int(threadIdx.x) >= heads * kDim) return;  // whole warps, of one head each
  const int lane = threadIdx.x % 32, h = threadIdx.x / kDim, d = threadIdx.x % kDim;
  const float own = lane < warps ? s.most[lane][h] : -INFINITY;
  const float most = warp_most(own);
  const float share = expf(own - most);
  const float sum = warp_sum(lane < warps ? s.sums[lane][h] * share : 0.0f);
  float total = 0;
  for (int w = 0; w < warps; ++w)
    total = fmaf(s.outputs[w][h][d / 16 * 20 + d % 16], __shfl_sync(0xffffffffu, share, w), total);
  if (alone) return store_result(to, s, heads, total / sum);
  at += h * (kDim + 2);
  at[d] = total;
  if (d == 0) *reinterpret_cast<float2*>(at + kDim) = make_float2(most, sum);
}

constexpr int kKeysRound = 16 * kChainWarps;  // keys that a block takes at a time

// Where this block's keys are; caches: by slot, keys and values.
__device__ __forceinline__ ChainKeys keys_of(const ChainArgs& args, const ChainUnit& unit, void* const* caches) {
  const int64_t at = int64_t(unit.kv_head) * args.context * kChainHeadDim;
  return {static_cast<__half*>(caches[2 * unit.slot]) + at,
          static_cast<__half*>(caches[2 * unit.slot + 1]) + at,
          nullptr,
          unit.valid,
          unit.end,
          0};
}

// Brings rounds first .. last - 1 of this warp's keys and values into the L2.
__device__ __forceinline__ void prefetch_rounds(const ChainKeys& keys, int begin, int first, int last) {
  for (int round = first; round < last; ++round) {
    const int key = begin + round * kKeysRound + int(threadIdx.x) / 32 * 16;
    if (key >= keys.end) return;
    prefetch_rows(keys.k, keys, key);
    prefetch_rows(keys.v, keys, key);
  }
}
// In the phase before: the caches' bytes come while that one's weights do not keep the memory busy.
__device__ __forceinline__ void prefetch_attention(const ChainArgs& args, const ChainUnit& unit, void* const* caches) {
  if (unit.works) prefetch_rounds(keys_of(args, unit, caches), unit.begin, 0, 2);
}

// `ready` returns when q, k and v may be read.
template <typename Ready>
__device__ __forceinline__ void attend(const ChainArgs& args, const ChainAttention& a, void* const* caches,
                                       ChainAttentionShared& s, const ChainUnit& unit, const ChainRotation& rotation,
                                       float code_scale, const Ready& ready) {
  constexpr int kDim = kChainHeadDim, kAhead = 4;  // rounds
  if (!unit.works) return ready();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, heads = args.heads_per_kv;
  const auto row_of = [&](const void* part, int token) {  // of the projection, the KV head's columns
    return static_cast<const __half*>(part) + int64_t(unit.slot * args.slot_rows + token) * a.x_stride +
           unit.kv_head * kDim;
  };
  ChainKeys keys = keys_of(args, unit, caches);
  keys.v_fresh = row_of(a.v, 0);
  keys.fresh_stride = a.x_stride;

  // Earlier tokens' rows and the norms' weights do not wait; values come by way of the L2, for want of registers.
  const int mine = unit.begin + warp * 16;
  KeyTile tile;
  load_keys(tile, keys, mine);
  prefetch_rounds(keys, unit.begin, 0, kAhead);
  const int token = warp - heads;  // whose key this warp makes
  const bool makes_key =
      token >= 0 && token <= unit.token && unit.valid + token < unit.end && unit.valid + token >= unit.begin;
  const float* norm = warp < heads ? a.q_norm : makes_key ? a.k_norm : nullptr;
  float weight[4] = {};
#pragma unroll
  for (int j = 0; j < 4; ++j) weight[j] = norm == nullptr ? 0.0f : norm[lane + 32 * j];
  ready();
  load_values(tile, keys, mine);

  if (warp < heads) {
    const auto* q = static_cast<const __half*>(a.q) + int64_t(unit.row) * a.x_stride;
    make_chain_head(q + (unit.kv_head * heads + warp) * kDim, norm != nullptr, weight, a.q_epsilon, rotation,
                    s.queries[warp]);
  } else if (makes_key) {
    __half* made = s.fresh[token];
    make_chain_head(row_of(a.k, token), norm != nullptr, weight, a.k_epsilon, rotation, made);
    if (unit.writes && token == unit.token) {
      __half* row = keys.k + int64_t(unit.valid + token) * kDim;
#pragma unroll
      for (int j = 0; j < 4; ++j) row[lane + 32 * j] = made[lane + 32 * j];
    }
  } else if (warp == kChainWarps - 1 && unit.writes) {
    const auto* from = reinterpret_cast<const uint2*>(row_of(a.v, unit.token));
    reinterpret_cast<uint2*>(keys.v + int64_t(unit.valid + unit.token) * kDim)[lane] = __ldcg(from + lane);
  }
  __syncthreads();

  const int warps = min((unit.end - unit.begin + 15) / 16, kChainWarps);  // that have keys
  if (warp < warps) {
    for (int first = mine;;) {
      insert_fresh(tile, keys, s, first);
      attend_tile(tile, s, heads, a.scale, first, unit.end, first == mine);
      first += kKeysRound;
      if (first >= unit.end) break;
      load_keys(tile, keys, first);
      load_values(tile, keys, first);
      prefetch_rounds(keys, first - warp * 16, kAhead - 1, kAhead);
      __syncwarp();  // what the round before left in shared memory
    }
  }
  __syncthreads();

  const int stride = heads * (kDim + 2), pair = int(blockIdx.x) / args.splits;
  float* all = args.partial + int64_t(pair) * args.splits * stride;
  const int column = unit.kv_head * heads * kDim;
  const HeadsResult to{static_cast<__half*>(a.y) + int64_t(unit.row) * a.y_stride + column,
                       a.codes == nullptr ? nullptr : a.codes + column / 64 * kCodesGroup, unit.row, code_scale};
  gather_warps(s, heads, warps, unit.active == 1, to, all + unit.split * stride);
  if (unit.active == 1) return;
  __syncthreads();
  if (threadIdx.x == 0) {
    int before;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before) : "l"(args.arrived + pair) : "memory");
    s.last = before == unit.active - 1;
    if (s.last) args.arrived[pair] = 0;
  }
  __syncthreads();
  if (s.last) merge_splits(all, heads, unit.active, s, to);
}

}  // namespace tcim_lite::cuda
