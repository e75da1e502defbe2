// What a block does in attention of many tokens (attention_prefill.cu), step by step.
#pragma once

#include "backends/cuda/kernels/common.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/mma.cuh"
#include "backends/cuda/kernels/wgmma_operand.cuh"

namespace tcim_lite::cuda::prefill_attention {

constexpr int kThreads = 128;  // of a part
constexpr int kRows = 64, kKeys = 64;

// Bytes of element (row, 16-byte chunk) of a tile: chunks are swizzled so that eight rows of a column lie in all banks.
template <int Dim>
__device__ __forceinline__ int tile_at(int row, int chunk) {
  return row * Dim * 2 + ((chunk & ~7) | ((chunk ^ row) & 7)) * 16;
}

// Rows of keys at or beyond `keys` become zero: nobody wrote them, and 0 * NaN is NaN.
template <int Dim>
__device__ __forceinline__ void fetch_tile(char* tile, const __half* from, int first, int keys) {
  constexpr int kChunks = Dim / 8, kStep = kThreads / kChunks;  // rows at a time, a multiple of 8
  const int row = int(threadIdx.x) % kThreads / kChunks, chunk = int(threadIdx.x) % kChunks;
  char* const to = tile + tile_at<Dim>(row, chunk);
  const __half* const at = from + int64_t(first + row) * Dim + chunk * 8;
#pragma unroll
  for (int i = 0; i < kKeys; i += kStep) {
    const bool inside = first + row + i < keys;
    copy_async(to + i * Dim * 2, inside ? at + i * Dim : from, inside ? 16 : 0);
  }
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}

__device__ __forceinline__ float power(float v) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(v));
  return v;
}

__device__ __forceinline__ void sync_part(int part) {
  asm volatile("bar.sync %0, %1;" ::"r"(part + 1), "n"(kThreads) : "memory");
}

// What a part passes to the first part: of each thread its sums, then largest scores and sums of probabilities of its
// two rows.
template <int Dim>
constexpr int kPartFloats = Dim / 2 + 4;

// The rows of a block; what they see lies in keys [first_key, keys).
struct Block {
  int slot, kv_head, heads, rows, first_row, valid, first_key, keys;

  // Of a lane's two rows; beyond the last one, whatever is there.
  __device__ __forceinline__ int row_of(int warp, int g, int half) const {
    return first_row + warp * 16 + g + half * 8;
  }
};

// The two rows of a lane: their queries as operand A, rows g and g + 8 of the warp, and where their results go.
template <int Dim>
struct LaneRows {
  uint32_t queries[Dim / 16][4];
  int begin[2], limit[2];  // keys that a row sees
  __half* y[2];
};
template <int Dim>
__device__ __forceinline__ void load_rows(const AttentionArgs& args, const Block& block, int warp, int lane,
                                          LaneRows<Dim>& lane_rows) {
  const int g = lane / 4, t = lane % 4;
  const __half* q[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = min(block.row_of(warp, g, half), block.rows - 1), token = row / block.heads;
    const int head = block.kv_head * block.heads + row % block.heads;
    const int64_t at = int64_t(block.slot) * args.slot_rows + token;
    lane_rows.limit[half] = min(block.valid + token + 1, args.context);
    lane_rows.begin[half] = max(lane_rows.limit[half] - args.window, 0);
    q[half] = static_cast<const __half*>(args.q) + at * args.q_stride + int64_t(head) * Dim;
    lane_rows.y[half] = static_cast<__half*>(args.y) + at * args.y_stride + int64_t(head) * Dim;
  }
#pragma unroll
  for (int step = 0; step < Dim / 16; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      lane_rows.queries[step][i] = *reinterpret_cast<const uint32_t*>(q[i % 2] + step * 16 + 2 * t + i / 2 * 8);
    }
  }
}

// What a lane has of its two rows so far.
template <int Dim>
struct Sums {
  float o[Dim / 8][4] = {};
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
};

// Scores of a tile's keys.
template <int Dim>
__device__ __forceinline__ void score_tile(const uint32_t (&a)[Dim / 16][4], const char* k_tile, int lane,
                                           float (&s)[kKeys / 8][4]) {
#pragma unroll
  for (int step = 0; step < Dim / 16; step += 2) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
      uint32_t b[4];  // of 32 elements of 8 keys
      load_matrix(b, k_tile + tile_at<Dim>(n * 8 + lane % 8, step * 2 + lane / 8));
      mma_half(s[n], a[step][0], a[step][1], a[step][2], a[step][3], b[0], b[1]);
      mma_half(s[n], a[step + 1][0], a[step + 1][1], a[step + 1][2], a[step + 1][3], b[2], b[3]);
    }
  }
}

// Scores of keys from `first` on to probabilities under the largest score so far; what was there before shrinks.
template <int Dim>
__device__ __forceinline__ void take_shares(Sums<Dim>& sums, float (&s)[kKeys / 8][4], const int (&begin)[2],
                                            const int (&limit)[2], int first, float scale, int t) {
  const bool all = first >= max(begin[0], begin[1]) && first + kKeys <= min(limit[0], limit[1]);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float now = sums.m[half];
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = s[n][2 * half + i];
        const int key = first + n * 8 + 2 * t + i;
        if (!all && (key < begin[half] || key >= limit[half])) score = -INFINITY;
        now = fmaxf(now, score);
      }
    }
    now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
    now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
    // Differences before products: the error of a large one would be raised to a power.
    const float most = now == -INFINITY ? 0.0f : now;
    const float keep = power((sums.m[half] - most) * scale);
    sums.m[half] = now;
    sums.l[half] *= keep;
#pragma unroll
    for (int d = 0; d < Dim / 8; ++d) sums.o[d][2 * half] *= keep, sums.o[d][2 * half + 1] *= keep;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = s[n][2 * half + i];
        score = power((score - most) * scale);
        sums.l[half] += score;
      }
    }
  }
}

// A key that is not finite shows in the scores of every row that sees it, so one warp checks the keys [begin, end) of a
// tile that were in the cache before this run.
template <int Dim>
__device__ __forceinline__ void mark_odd_keys(Sums<Dim>& sums, const float (&s)[kKeys / 8][4], int begin, int end,
                                              int t) {
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int key = n * 8 + 2 * t + i;
      if (key >= begin && key < end) sums.l[0] = marked(sums.l[0], s[n][i]);
    }
  }
}

template <int Dim>
__device__ __forceinline__ void add_values(Sums<Dim>& sums, const float (&s)[kKeys / 8][4], const char* v_tile,
                                           int lane) {
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    const uint32_t p[4] = {pack(s[2 * step][0], s[2 * step][1]), pack(s[2 * step][2], s[2 * step][3]),
                           pack(s[2 * step + 1][0], s[2 * step + 1][1]), pack(s[2 * step + 1][2], s[2 * step + 1][3])};
#pragma unroll
    for (int d = 0; d < Dim / 8; d += 2) {
      uint32_t b[4];  // 16 keys by 16 elements
      load_matrix_transposed(b, v_tile + tile_at<Dim>(step * 16 + lane % 16, d + lane / 16));
      mma_half(sums.o[d], p[0], p[1], p[2], p[3], b[0], b[1]);
      mma_half(sums.o[d + 1], p[0], p[1], p[2], p[3], b[2], b[3]);
    }
  }
}

// The first part adds what the others have; false for those. shared: [part - 1][value][thread] of floats.
template <int Dim, int Parts>
__device__ __forceinline__ bool add_parts(Sums<Dim>& sums, char* shared, int part, float scale) {
  float* const told = reinterpret_cast<float*>(shared) + threadIdx.x % kThreads;
  __syncthreads();
  if (part > 0) {
    float* const mine = told + (part - 1) * kPartFloats<Dim> * kThreads;
#pragma unroll
    for (int i = 0; i < Dim / 2; ++i) mine[i * kThreads] = sums.o[i / 4][i % 4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      mine[(Dim / 2 + half) * kThreads] = sums.m[half];
      mine[(Dim / 2 + 2 + half) * kThreads] = sums.l[half];
    }
  }
  __syncthreads();
  if (part > 0) return false;
#pragma unroll
  for (int other = 0; other < Parts - 1; ++other) {
    const float* const its = told + other * kPartFloats<Dim> * kThreads;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float its_m = its[(Dim / 2 + half) * kThreads], now = fmaxf(sums.m[half], its_m);
      const float most = now == -INFINITY ? 0.0f : now;
      const float keep = power((sums.m[half] - most) * scale), add = power((its_m - most) * scale);
      sums.m[half] = now;
      sums.l[half] = sums.l[half] * keep + its[(Dim / 2 + 2 + half) * kThreads] * add;
#pragma unroll
      for (int i = 0; i < Dim / 4; ++i) {
        float& sum = sums.o[i / 2][2 * half + i % 2];
        sum = sum * keep + its[(i / 2 * 4 + 2 * half + i % 2) * kThreads] * add;
      }
    }
  }
  return true;
}

// What the parts of all keys have given, as fp16, to y or to the operand of the Linear behind it.
template <int Dim>
__device__ __forceinline__ void store_rows(const AttentionArgs& args, const Sums<Dim>& sums,
                                           const LaneRows<Dim>& lane_rows, const Block& block, int warp, int lane) {
  const int g = lane / 4, t = lane % 4;
  float mark = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = sums.l[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const int row = block.row_of(warp, g, half);
    const bool inside = row < block.rows;
    const int head = block.kv_head * block.heads + row % block.heads;
    if (args.sinks != nullptr && inside)  // of a head, far above its scores: the sum is infinite and the result 0
      sum += expf(args.sinks[head] - sums.m[half] * args.scale);
    const float inverse = 1.0f / sum;
#pragma unroll
    for (int first = 0; first < Dim / 8; first += 8) {  // a group of 64 elements
      float v[8][2];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          v[j][i] = sums.o[first + j][2 * half + i] * inverse;
          if (inside) mark = marked(mark, v[j][i]);
        }
        const __half2 both = __halves2half2(to_half(v[j][0]), to_half(v[j][1]));
        if (args.operand == nullptr && inside)
          *reinterpret_cast<__half2*>(lane_rows.y[half] + (first + j) * 8 + 2 * t) = both;
        const float2 rounded_both = __half22float2(both);
        v[j][0] = rounded_both.x, v[j][1] = rounded_both.y;
      }
      if (args.operand != nullptr)
        leave_group(args.operand, args.operand_rows, block.slot * args.slot_rows + row / block.heads,
                    (head * Dim + first * 8) / 64, v, inside);
    }
  }
  tell_unless_finite(mark, args.odd);
}

}  // namespace tcim_lite::cuda::prefill_attention
