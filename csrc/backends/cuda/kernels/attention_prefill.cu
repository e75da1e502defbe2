// Attention of many tokens: 64 query rows of a KV head a block, 16 a warp, on the tensor cores; keys pass in tiles of
// 64 through shared memory, and only as many as the last live row of the block sees.
#include "backends/cuda/kernels/common.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/mma.cuh"

namespace tcim_lite::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kRows = 64, kKeys = 64;

// Bytes of element (row, 16-byte chunk) of a tile: chunks are swizzled so that eight rows of a column lie in all banks.
template <int Dim>
__device__ __forceinline__ int tile_at(int row, int chunk) {
  return row * Dim * 2 + ((chunk & ~7) | ((chunk ^ row) & 7)) * 16;
}

// Rows of keys at or beyond `keys` become zero: nobody wrote them, and 0 * NaN is NaN.
template <int Dim>
__device__ __forceinline__ void fetch_tile(char* tile, const __half* from, int first, int keys) {
  constexpr int kChunks = Dim / 8;
  for (int i = threadIdx.x; i < kKeys * kChunks; i += kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const bool inside = first + row < keys;
    copy_async(tile + tile_at<Dim>(row, chunk), from + int64_t(inside ? first + row : 0) * Dim + chunk * 8,
               inside ? 16 : 0);
  }
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}

template <int Dim>
__global__ void __launch_bounds__(kThreads) prefill_kernel(AttentionArgs args) {
  constexpr int kSteps = Dim / 16;  // of the score product
  extern __shared__ __align__(128) char shared[];
  wait_for_inputs();
  launch_next();
  const int slot = blockIdx.z, kv_head = blockIdx.y;
  const int heads = args.q_heads / args.kv_heads;
  const int tokens = args.live == nullptr ? args.slot_rows : min(max(*args.live, 0), args.slot_rows);
  const int rows = tokens * heads;                             // token-major
  const int first_row = (gridDim.x - 1 - blockIdx.x) * kRows;  // the longest first
  if (first_row >= rows || (args.refused != nullptr && *args.refused != 0)) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int valid = *args.valid[slot];
  const int last_token = (min(first_row + kRows, rows) - 1) / heads;
  const int keys = min(valid + last_token + 1, args.context);
  const int tiles = (keys + kKeys - 1) / kKeys;
  const int64_t cache_at = int64_t(kv_head) * args.context * Dim;
  const __half* k = static_cast<const __half*>(args.k[slot]) + cache_at;
  const __half* v = static_cast<const __half*>(args.v[slot]) + cache_at;

  constexpr int kTileBytes = kKeys * Dim * 2;
  char* k_tiles = shared;                   // [2]
  char* v_tiles = shared + 2 * kTileBytes;  // [2]
  fetch_tile<Dim>(k_tiles, k, 0, keys);
  fetch_tile<Dim>(v_tiles, v, 0, keys);
  commit_copies();

  // The two rows of this lane, and the queries as operand A: rows g and g + 8 of the warp.
  int limit[2];  // keys that a row sees
  const __half* q[2];
  __half* y[2];
  const auto row_of = [&](int half) { return first_row + warp * 16 + g + half * 8; };
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = min(row_of(half), rows - 1), token = row / heads, head = kv_head * heads + row % heads;
    const int64_t at = int64_t(slot) * args.slot_rows + token;
    limit[half] = min(valid + token + 1, args.context);
    q[half] = static_cast<const __half*>(args.q) + at * args.q_stride + int64_t(head) * Dim;
    y[half] = static_cast<__half*>(args.y) + at * args.y_stride + int64_t(head) * Dim;
  }
  uint32_t a[kSteps][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __half* at = q[i % 2] + step * 16 + 2 * t + i / 2 * 8;
      const __half2 both = __halves2half2(at[0], at[1]);
      a[step][i] = *reinterpret_cast<const uint32_t*>(&both);
    }
  }
  const float scale = args.scale * 1.4426950408889634f;  // probabilities by exp2
  float o[Dim / 8][4] = {};
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};

  for (int tile = 0; tile < tiles; ++tile) {
    const int first = tile * kKeys;
    if (tile + 1 < tiles) {
      fetch_tile<Dim>(k_tiles + (tile + 1) % 2 * kTileBytes, k, first + kKeys, keys);
      fetch_tile<Dim>(v_tiles + (tile + 1) % 2 * kTileBytes, v, first + kKeys, keys);
    }
    commit_copies();
    wait_for_copies<1>();
    __syncthreads();
    const char* k_tile = k_tiles + tile % 2 * kTileBytes;
    const char* v_tile = v_tiles + tile % 2 * kTileBytes;
    float s[kKeys / 8][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; step += 2) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        uint32_t b[4];  // of 32 elements of 8 keys
        load_matrix(b, k_tile + tile_at<Dim>(n * 8 + lane % 8, step * 2 + lane / 8));
        mma_half(s[n], a[step][0], a[step][1], a[step][2], a[step][3], b[0], b[1]);
        mma_half(s[n], a[step + 1][0], a[step + 1][1], a[step + 1][2], a[step + 1][3], b[2], b[3]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float now = m[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = s[n][2 * half + i];
          score = first + n * 8 + 2 * t + i < limit[half] ? score * scale : -INFINITY;
          now = fmaxf(now, score);
        }
      }
      now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
      now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
      const float base = now == -INFINITY ? 0.0f : now;
      const float keep = exp2f(m[half] - base);
      m[half] = now;
      l[half] *= keep;
#pragma unroll
      for (int d = 0; d < Dim / 8; ++d) o[d][2 * half] *= keep, o[d][2 * half + 1] *= keep;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = s[n][2 * half + i];
          score = exp2f(score - base);
          l[half] += score;
        }
      }
    }
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const uint32_t p[4] = {pack(s[2 * step][0], s[2 * step][1]), pack(s[2 * step][2], s[2 * step][3]),
                             pack(s[2 * step + 1][0], s[2 * step + 1][1]),
                             pack(s[2 * step + 1][2], s[2 * step + 1][3])};
#pragma unroll
      for (int d = 0; d < Dim / 8; d += 2) {
        uint32_t b[4];  // 16 keys by 16 elements
        load_matrix_transposed(b, v_tile + tile_at<Dim>(step * 16 + lane % 16, d + lane / 16));
        mma_half(o[d], p[0], p[1], p[2], p[3], b[0], b[1]);
        mma_half(o[d + 1], p[0], p[1], p[2], p[3], b[2], b[3]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = l[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (row_of(half) >= rows) continue;
#pragma unroll
    for (int d = 0; d < Dim / 8; ++d) {
      store(y[half] + d * 8 + 2 * t, o[d][2 * half] / sum);
      store(y[half] + d * 8 + 2 * t + 1, o[d][2 * half + 1] / sum);
    }
  }
}

template <int Dim>
constexpr int kShared = 4 * kKeys * Dim * 2;

template <int Dim>
void launch_dim(const AttentionArgs& args, cudaStream_t stream) {
  const int rows = args.slot_rows * (args.q_heads / args.kv_heads);
  launch(prefill_kernel<Dim>, dim3(unsigned((rows + kRows - 1) / kRows), unsigned(args.kv_heads), unsigned(args.slots)),
         dim3(kThreads), kShared<Dim>, stream, args);
}

}  // namespace

bool prefill_attention_supports(const AttentionArgs& args) { return args.head_dim == 64 || args.head_dim == 128; }

void launch_prefill_attention(const AttentionArgs& args, cudaStream_t stream) {
  if (args.head_dim == 64) launch_dim<64>(args, stream);
  if (args.head_dim == 128) launch_dim<128>(args, stream);
}

void prepare_attention() {
  CUDA_CHECK(cudaFuncSetAttribute(prefill_kernel<64>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared<64>));
  CUDA_CHECK(cudaFuncSetAttribute(prefill_kernel<128>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared<128>));
}

}  // namespace tcim_lite::cuda
