// A warp's keys and values of attention on the tensor cores, eight rows of a cache at a time as they lie in
// its ring: scores are queries times keys, with the query heads of a KV head as rows, and become as they lie the right
// operand of values times scores.
#pragma once

#include "backends/cuda/decode/ring.cuh"
#include "backends/cuda/kernels/common.cuh"

namespace tcim_lite::cuda::decode {

template <typename Shape>
struct AttentionShared {
  static constexpr int kDim = kHeadDim;
  // Rows end with some room: what a warp reads or writes at once falls into different banks.
  __align__(16) __half queries[Shape::kMostHeads][kDim + 8];
  // Of this run.
  __align__(16) __half fresh_keys[kMostRows][kDim], fresh_values[kMostRows][kDim];
  union {
    struct {  // what each warp has of its keys
      __align__(16) float outputs[Shape::kWarps][Shape::kMostHeads][kDim + 4];
      float most[Shape::kWarps][Shape::kMostHeads], sums[Shape::kWarps][Shape::kMostHeads];
      int last;
    };
    struct {  // where one block has all keys of a row
      // By 8 heads: the warps' largest scores. By four stages of eight keys each: shares as tensor cores take them.
      __align__(16) float largest[8][Shape::kWarps];
      __align__(16) uint32_t shares[Shape::kWarps / 2][32][4];
      char* values[2 * Shape::kWarps];  // stages
      float results[Shape::kMostHeads][kDim];
    };
  };
};

// Piece `piece` of a row in a stage of the ring (Ring::fetch_rows).
__device__ __forceinline__ char* piece_of(char* stage, int row, int piece) {
  return stage + row * kKeyBytes + (piece ^ row) * 16;
}

// What this run made, `made` from key `fresh` on, to the rows of the stages from `stage` on, which begin with key
// `first`.
template <typename Ring>
__device__ __forceinline__ void insert_fresh(Ring& ring, int stage, int halves, const __half (*made)[kHeadDim],
                                             int first, int fresh, int end, int lane) {
  const int piece = lane % 16, rows = min(8 * halves, end - first);
#pragma unroll 1
  for (int row = max(fresh - first, 0) + lane / 16; row < rows; row += 2)
    *reinterpret_cast<uint4*>(piece_of(ring.held(stage + row / 8), row % 8, piece)) =
        reinterpret_cast<const uint4*>(made[first + row - fresh])[piece];
  __syncwarp();
}

// Two elements of a query, the word-th of 64, where a lane finds together what it takes to the tensor cores at once.
__device__ __forceinline__ int place_of_query(int word) { return word / 16 * 16 + word % 4 * 4 + word / 4 % 4; }

// What a warp has so far. Lane 4 g + t has the maximum and the sum of head g, and of heads 2 t + i % 2 the elements
// 16 m + g + 8 (i / 2).
struct Attended {
  float most = -INFINITY, sum = 0;
  float outputs[kHeadDim / 16][4] = {};
};

// Of head g with the stage's keys 2 t and 2 t + 1.
template <typename Shape>
__device__ __forceinline__ float2 score_keys(char* keys, const AttentionShared<Shape>& s, int heads, int lane) {
  const int g = lane / 4, t = lane % 4;
  float even[4] = {}, odd[4] = {};  // two sums that do not wait for each other take half as long
#pragma unroll
  for (int i = 0; i < kHeadDim / 32; ++i) {
    uint4 q = make_uint4(0, 0, 0, 0);
    if (g < heads) q = reinterpret_cast<const uint4*>(s.queries[g])[4 * i + t];
    uint32_t k[4];
    load_matrix(k, piece_of(keys, lane % 8, 4 * i + lane / 8));
    mma_half(even, q.x, 0, q.y, 0, k[0], k[1]);
    mma_half(odd, q.z, 0, q.w, 0, k[2], k[3]);
  }
  return make_float2(even[0] + odd[0], even[1] + odd[1]);
}

// Those of the keys in the first stages that the ring holds, one or two.
template <typename Shape, typename Ring>
__device__ __forceinline__ void score_halves(float (&score)[2][2], Ring& ring, int halves,
                                             const AttentionShared<Shape>& s, int heads, int lane) {
#pragma unroll 1  // two copies of the code would take more registers than there are; so in attend_keys
  for (int u = 0; u < halves; ++u) {
    const float2 now = score_keys(ring.held(u), s, heads, lane);
    if (u == 0) {
      score[0][0] = now.x, score[0][1] = now.y;
    } else {
      score[1][0] = now.x, score[1][1] = now.y;
    }
  }
}

__device__ __forceinline__ uint32_t packed_halves(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}

__device__ __forceinline__ void add_values(Attended& all, char* values, uint32_t shares, int lane) {
#pragma unroll
  for (int i = 0; i < kHeadDim / 32; ++i) {
    uint32_t v[4];
    load_matrix_transposed(v, piece_of(values, lane % 8, 4 * i + lane / 8));
    mma_half(all.outputs[2 * i], v[0], v[1], shares);
    mma_half(all.outputs[2 * i + 1], v[2], v[3], shares);
  }
}

// Scores of 16 keys to their shares of the whole; returns by how much what was there before shrinks.
__device__ __forceinline__ float take_shares(Attended& all, float (&score)[2][2], float scale, int keys) {
  const int t = threadIdx.x % 4;
  float most = all.most, sum = 0;
#pragma unroll
  for (int u = 0; u < 2; ++u) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // Rounded: in an FMA with what is taken off below, the error of a large product would be raised to a power.
      const bool seen = 8 * u + 2 * t + i < keys;
      score[u][i] = seen ? __fmul_rn(score[u][i], scale) : -INFINITY;
      if (seen) sum = marked(sum, score[u][i]);
      most = fmaxf(most, score[u][i]);
    }
  }
  most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
  most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
#pragma unroll
  for (int u = 0; u < 2; ++u) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      score[u][i] = expf(score[u][i] - most);
      sum += score[u][i];
    }
  }
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  const float keep = expf(all.most - most);
  all.most = most;
  all.sum = fmaf(all.sum, keep, sum);
  return keep;
}

__device__ __forceinline__ void scale_outputs(Attended& all, float keep) {
  const int t = threadIdx.x % 4;
  const float even = __shfl_sync(0xffffffffu, keep, 8 * t), odd = __shfl_sync(0xffffffffu, keep, 8 * t + 4);
#pragma unroll
  for (auto& four : all.outputs) four[0] *= even, four[1] *= odd, four[2] *= even, four[3] *= odd;
}

template <typename Shape>
__device__ __forceinline__ void leave(AttentionShared<Shape>& s, const Attended& all, int heads) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  if (t == 0 && g < heads) s.most[warp][g] = all.most, s.sums[warp][g] = all.sum;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (2 * t + i >= heads) continue;
    float* const to = s.outputs[warp][2 * t + i] + g;
#pragma unroll
    for (int m = 0; m < kHeadDim / 16; ++m) to[16 * m] = all.outputs[m][i], to[16 * m + 8] = all.outputs[m][i + 2];
  }
}

// Where one block has all keys of a row, 16 a warp at most, its warps share the work twice: by keys up to the shares of
// values, then by elements of the values, so that nothing is left to be added up. All warps.
template <typename Shape, typename Ring>
__device__ __forceinline__ void leave_shares(AttentionShared<Shape>& s, Ring& ring, const AttentionUnit& unit,
                                             int heads, float scale) {
  const int thread = unhoisted(threadIdx.x), warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int first = unit.first_key(warp), keys = unit.end_key(warp) - first;
  const int halves = keys > 8 ? 2 : keys > 0 ? 1 : 0;
  float score[2][2] = {};
  if (halves > 0) {
    ring.take(halves);
    ring.take(halves);
    if (first + keys > unit.valid) {
      insert_fresh(ring, 0, halves, s.fresh_keys, first, unit.valid, first + keys, lane);
      insert_fresh(ring, halves, halves, s.fresh_values, first, unit.valid, first + keys, lane);
    }
    if (lane < halves) s.values[first / 8 + lane] = ring.held(halves + lane);
  }
  score_halves(score, ring, halves, s, heads, lane);
  float most = -INFINITY;
#pragma unroll
  for (int u = 0; u < 2; ++u) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // Rounded: in an FMA with what is taken off below, the error of a large product would be raised to a power.
      const float scaled = __fmul_rn(score[u][i], scale);
      score[u][i] = 8 * u + 2 * t + i < keys ? marked(scaled, scaled) : -INFINITY;
      most = fmaxf(most, score[u][i]);
    }
  }
  most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
  most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
  if (t == 0) s.largest[g][warp] = most;
  sync_warps<Shape>();
  constexpr int kEach = Shape::kWarps / 4;
#pragma unroll
  for (int i = 0; i < kEach; ++i) most = fmaxf(most, s.largest[g][kEach * t + i]);
  most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
  most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
#pragma unroll
  for (int u = 0; u < 2; ++u) {
    if (u >= halves) break;
    const int stage = first / 8 + u;
    s.shares[stage / 4][lane][stage % 4] = packed_halves(expf(score[u][0] - most), expf(score[u][1] - most));
  }
}

// What a warp's share of the elements comes to, kPieces times eight, of all heads: each(p, pair), of head lane / 4 and
// piece p elements lane % 4 * 2 and the next.
template <typename Shape>
constexpr int kPiecesOfAWarp = kHeadDim / 8 / Shape::kWarps;
template <typename Shape, typename Each>
__device__ __forceinline__ void weigh_values(const AttentionShared<Shape>& s, int keys, const Each& each) {
  const int thread = unhoisted(threadIdx.x), lane = thread % 32, stages = (keys + 7) / 8;
  constexpr uint32_t kOnes = 0x3c003c00;
  float sum[4] = {}, outputs[kPiecesOfAWarp<Shape>][4] = {};
#pragma unroll 1
  for (int first = 0; first < stages; first += 4) {
    char* const stage = s.values[min(first + lane / 8, stages - 1)];
    uint4 four = reinterpret_cast<const uint4*>(s.shares[first / 4])[lane];
    if (first + 1 >= stages) four.y = 0;
    if (first + 2 >= stages) four.z = 0;
    if (first + 3 >= stages) four.w = 0;
    mma_half(sum, four.x, 0, four.y, 0, kOnes, kOnes);
    mma_half(sum, four.z, 0, four.w, 0, kOnes, kOnes);
#pragma unroll
    for (int p = 0; p < kPiecesOfAWarp<Shape>; ++p) {
      uint32_t v[4];
      load_matrix_transposed(v, piece_of(stage, lane % 8, thread / 32 * kPiecesOfAWarp<Shape> + p));
      mma_half(outputs[p], four.x, 0, four.y, 0, v[0], v[1]);
      mma_half(outputs[p], four.z, 0, four.w, 0, v[2], v[3]);
    }
  }
  const float inverse = __frcp_rn(sum[0]);
#pragma unroll
  for (int p = 0; p < kPiecesOfAWarp<Shape>; ++p)
    each(p, make_float2(outputs[p][0] * inverse, outputs[p][1] * inverse));
}

// By a warp with keys: all of them.
template <typename Shape, typename Ring>
__device__ __forceinline__ void attend_keys(AttentionShared<Shape>& s, Ring& ring, const AttentionUnit& unit, int heads,
                                            float scale) {
  const int begin = unit.first_key(threadIdx.x / 32), end = unit.end_key(threadIdx.x / 32);
  const int lane = unhoisted(threadIdx.x % 32);
  Attended all;
#pragma unroll 1
  for (int first = begin; first < end; first += 16) {
    const int halves = end - first > 8 ? 2 : 1;
    const bool fresh = first + 8 * halves > unit.valid;
    ring.take(halves);
    if (fresh) insert_fresh(ring, 0, halves, s.fresh_keys, first, unit.valid, end, lane);
    float score[2][2] = {};
    score_halves(score, ring, halves, s, heads, lane);
    const bool more = first + 16 < end;  // or else the stages wait until nobody waits for this block
    if (more) ring.give_up(halves);
    const float keep = take_shares(all, score, scale, end - first);
    if (first != begin) scale_outputs(all, keep);
    const uint32_t low = packed_halves(score[0][0], score[0][1]), high = packed_halves(score[1][0], score[1][1]);
    const int values = more ? 0 : halves;
    ring.take(halves);
    if (fresh) insert_fresh(ring, values, halves, s.fresh_values, first, unit.valid, end, lane);
#pragma unroll 1
    for (int u = 0; u < halves; ++u) add_values(all, ring.held(values + u), u == 0 ? low : high, lane);
    if (more) ring.give_up(halves);
  }
  leave(s, all, heads);
}

}  // namespace tcim_lite::cuda::decode
