// Attention of many tokens: 64 query rows of a KV head a block, 16 a warp, on the tensor cores; keys pass in tiles of
// 64 through shared memory, and only as many as the last live row of the block sees. Where there are few blocks, parts
// of a block, of four warps each, take turns at the tiles, and the first adds the others' sums.
#include "backends/cuda/kernels/common.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/mma.cuh"

namespace tcim_lite::cuda {
namespace {

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
      const __half* at = q[i % 2] + step * 16 + 2 * t + i / 2 * 8;
      const __half2 both = __halves2half2(at[0], at[1]);
      lane_rows.queries[step][i] = *reinterpret_cast<const uint32_t*>(&both);
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
    if (row >= block.rows) continue;
    if (args.sinks != nullptr)  // of a head, far above its scores: the sum is infinite and the result 0
      sum += expf(args.sinks[block.kv_head * block.heads + row % block.heads] - sums.m[half] * args.scale);
#pragma unroll
    for (int d = 0; d < Dim / 8; ++d) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float result = sums.o[d][2 * half + i] / sum;
        mark = marked(mark, result);
        store(lane_rows.y[half] + d * 8 + 2 * t + i, result);
      }
    }
  }
  tell_unless_finite(mark, args.odd);
}

template <int Dim, int Parts>
__global__ void __launch_bounds__(kThreads* Parts, Parts == 1 ? 3 : 1) prefill_kernel(AttentionArgs args) {
  extern __shared__ __align__(128) char shared[];
  wait_for_inputs();
  launch_next();
  Block block{int(blockIdx.z), int(blockIdx.y), args.q_heads / args.kv_heads};
  const int tokens = args.live == nullptr ? args.slot_rows : min(max(*args.live, 0), args.slot_rows);
  block.rows = tokens * block.heads;                       // token-major
  block.first_row = (gridDim.x - 1 - blockIdx.x) * kRows;  // the longest first
  if (block.first_row >= block.rows || (args.refused != nullptr && *args.refused != 0)) return;
  const int part = threadIdx.x / kThreads, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  block.valid = *args.valid[block.slot];
  const int last_token = (min(block.first_row + kRows, block.rows) - 1) / block.heads;
  block.keys = min(block.valid + last_token + 1, args.context);
  block.first_key = max(min(block.valid + block.first_row / block.heads + 1, args.context) - args.window, 0);
  const int first_tile = block.first_key / kKeys + part, tiles = (block.keys + kKeys - 1) / kKeys;
  const int64_t cache_at = int64_t(block.kv_head) * args.context * Dim;
  const __half* k = static_cast<const __half*>(args.k[block.slot]) + cache_at;
  const __half* v = static_cast<const __half*>(args.v[block.slot]) + cache_at;

  constexpr int kTileBytes = kKeys * Dim * 2;
  char* k_tiles = shared + part * 4 * kTileBytes;  // [2]
  char* v_tiles = k_tiles + 2 * kTileBytes;        // [2]
  fetch_tile<Dim>(k_tiles, k, first_tile * kKeys, block.keys);
  fetch_tile<Dim>(v_tiles, v, first_tile * kKeys, block.keys);
  commit_copies();
  LaneRows<Dim> rows;
  load_rows<Dim>(args, block, warp, lane, rows);
  const float scale = args.scale * 1.4426950408889634f;  // probabilities by exp2
  Sums<Dim> sums;
  for (int tile = first_tile, place = 0; tile < tiles; tile += Parts, place ^= 1) {
    const int first = tile * kKeys;
    if (tile + Parts < tiles) {
      fetch_tile<Dim>(k_tiles + (place ^ 1) * kTileBytes, k, first + Parts * kKeys, block.keys);
      fetch_tile<Dim>(v_tiles + (place ^ 1) * kTileBytes, v, first + Parts * kKeys, block.keys);
    }
    commit_copies();
    wait_for_copies<1>();
    sync_part(part);
    float s[kKeys / 8][4] = {};
    score_tile<Dim>(rows.queries, k_tiles + place * kTileBytes, lane, s);
    if (block.first_row == 0 && warp == 0)
      mark_odd_keys<Dim>(sums, s, block.first_key - first, block.valid - first, lane % 4);
    take_shares<Dim>(sums, s, rows.begin, rows.limit, first, scale, lane % 4);
    add_values<Dim>(sums, s, v_tiles + place * kTileBytes, lane);
    sync_part(part);
  }
  if constexpr (Parts > 1) {
    if (!add_parts<Dim, Parts>(sums, shared, part, scale)) return;
  }
  store_rows<Dim>(args, sums, rows, block, warp, lane);
}

template <int Dim, int Parts>
constexpr int kShared = Parts * 4 * kKeys * Dim * 2;
static_assert(kShared<128, 3> >= 2 * kPartFloats<128> * kThreads * 4 &&
              kShared<64, 3> >= 2 * kPartFloats<64> * kThreads * 4);

template <int Dim, int Parts>
void launch_parts(const AttentionArgs& args, dim3 grid, cudaStream_t stream) {
  launch(prefill_kernel<Dim, Parts>, grid, dim3(kThreads * Parts), kShared<Dim, Parts>, stream, args);
}

template <int Dim>
void launch_dim(const AttentionArgs& args, cudaStream_t stream) {
  const int rows = args.slot_rows * (args.q_heads / args.kv_heads);
  const dim3 grid(unsigned((rows + kRows - 1) / kRows), unsigned(args.kv_heads), unsigned(args.slots));
  const int blocks = int(grid.x * grid.y * grid.z);
  if (blocks <= multiprocessors() && kShared<Dim, 3> <= most_shared()) return launch_parts<Dim, 3>(args, grid, stream);
  launch_parts<Dim, 1>(args, grid, stream);
}

template <int Dim>
void prepare_dim() {
  const auto allow = [](auto kernel, size_t bytes) {
    if (bytes > most_shared()) return;
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
  };
  allow(prefill_kernel<Dim, 1>, kShared<Dim, 1>);
  allow(prefill_kernel<Dim, 3>, kShared<Dim, 3>);
}

}  // namespace

bool prefill_attention_supports(const AttentionArgs& args) { return args.head_dim == 64 || args.head_dim == 128; }

void launch_prefill_attention(const AttentionArgs& args, cudaStream_t stream) {
  if (args.head_dim == 64) launch_dim<64>(args, stream);
  if (args.head_dim == 128) launch_dim<128>(args, stream);
}

void prepare_attention() {
  prepare_dim<64>();
  prepare_dim<128>();
}

}  // namespace tcim_lite::cuda
