// A Linear of experts with many rows and quantised weights. Pairs of a token and an expert are sorted by expert; tiles
// of 128 outputs by 32 pairs of one expert run on the int8 tensor cores, and an expert's weights are read once a tile.
// The product is that of linear_gemm.cu: a stage of the pipeline is one group of 64 inputs, whose exact integer sums
// are scaled into fp32 sums at once.
#include "backends/cuda/kernels/linear.cuh"
#include "backends/cuda/kernels/linear_items.cuh"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda {
namespace {

constexpr int kRows = 32;  // pairs of a tile

template <WeightFormat Format>
using Tile = ItemTile<Format, kRows>;

struct Scratch {
  int8_t* codes;    // [rows of x, inputs]: of a token, or of a pair where each has a row of its own
  float* scales;    // [rows of x, inputs / 64]
  int* pairs;       // of all experts, one expert after the other
  int* pair_begin;  // [experts + 1], in `pairs`
  int* tile_begin;  // [experts + 1]
};

int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

__device__ __forceinline__ int live_pairs(const ExpertsArgs& args) { return live_rows(args.linear) * args.chosen; }

// One block. An id that is no expert's is left out.
__global__ void sort_kernel(ExpertsArgs args, Scratch scratch) {
  extern __shared__ int counts[];  // [experts]: pairs, then where the next one goes
  wait_for_inputs();
  launch_next();
  const int pairs = live_pairs(args);
  for (int expert = threadIdx.x; expert < args.experts; expert += blockDim.x) counts[expert] = 0;
  __syncthreads();
  for (int pair = threadIdx.x; pair < pairs; pair += blockDim.x) {
    if (const int id = expert_of(args, pair); unsigned(id) < unsigned(args.experts)) atomicAdd(&counts[id], 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int pair = 0, tile = 0;
    for (int expert = 0; expert <= args.experts; ++expert) {
      scratch.pair_begin[expert] = pair;
      scratch.tile_begin[expert] = tile;
      if (expert == args.experts) break;
      const int count = counts[expert];
      counts[expert] = pair;
      pair += count;
      tile += (count + kRows - 1) / kRows;
    }
  }
  __syncthreads();
  for (int pair = threadIdx.x; pair < pairs; pair += blockDim.x) {
    if (const int id = expert_of(args, pair); unsigned(id) < unsigned(args.experts))
      scratch.pairs[atomicAdd(&counts[id], 1)] = pair;
  }
}

// A block for each row of x.
template <typename T>
__global__ void quantize_kernel(ExpertsArgs args, Scratch scratch, float factor) {
  wait_for_inputs();
  launch_next();
  const LinearArgs& linear = args.linear;
  const int row = blockIdx.x, parts = args.own_rows ? args.chosen : 1;
  if (row >= live_rows(linear) * parts) return;
  const T* x = static_cast<const T*>(linear.x) + row / parts * linear.x_stride + int64_t(row % parts) * linear.inputs;
  for (int first = 0; first < linear.inputs; first += blockDim.x * 8) {
    const int k = first + int(threadIdx.x) * 8;
    const bool inside = k < linear.inputs;
    float v[8] = {};
    if (inside) load8_any(x + k, v);
    uint2 codes;
    const float scale = quantize_group(v, codes);
    if (!inside) continue;
    *reinterpret_cast<uint2*>(scratch.codes + int64_t(row) * linear.inputs + k) = codes;
    if (k % 64 == 0) scratch.scales[int64_t(row) * (linear.inputs / 64) + k / 64] = scale * factor;
  }
}

// Grid: (tiles of outputs, at most so many tiles of pairs).
template <typename T, WeightFormat Format>
__global__ void __launch_bounds__(Tile<Format>::kThreads, 2) experts_gemm_kernel(ExpertsArgs args, Scratch scratch) {
  constexpr int kTiles = kRows / 16;  // of 8 pairs, of a warp
  extern __shared__ __align__(128) char shared[];
  __shared__ int pair_of_row[kRows], x_rows[kRows], expert_of_tile;
  wait_for_inputs();
  launch_next();
  const LinearArgs& linear = args.linear;
  const int tile_of_pairs = blockIdx.y;
  if (tile_of_pairs >= scratch.tile_begin[args.experts]) return;
  for (int expert = threadIdx.x; expert < args.experts; expert += int(blockDim.x)) {
    if (scratch.tile_begin[expert] <= tile_of_pairs && tile_of_pairs < scratch.tile_begin[expert + 1])
      expert_of_tile = expert;
  }
  __syncthreads();
  const int expert = expert_of_tile;
  const int first_pair = scratch.pair_begin[expert] + (tile_of_pairs - scratch.tile_begin[expert]) * kRows;
  const int count = min(kRows, scratch.pair_begin[expert + 1] - first_pair);
  if (threadIdx.x < kRows) {  // rows beyond are the first one again, and nobody stores them
    const int pair = scratch.pairs[first_pair + (int(threadIdx.x) < count ? int(threadIdx.x) : 0)];
    pair_of_row[threadIdx.x] = pair;
    x_rows[threadIdx.x] = args.own_rows ? pair : pair / args.chosen;
  }
  __syncthreads();

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int groups = linear.inputs / 64, blocks = (linear.outputs + 15) / 16,
            block = int(blockIdx.x) * Tile<Format>::kBlocks;
  const int warp_block = warp % 4 * 2, warp_row = warp / 4 * (kRows / 2);
  const char* weights = static_cast<const char*>(linear.weights) + expert * args.expert_bytes;
  float acc[2][kTiles][4] = {};
  multiply_groups<Format, kRows>(acc, shared, groups, [&](char* stage, int group) {
    fetch_items<Tile<Format>>(stage, weights, block, blocks, group, groups);
    if (threadIdx.x < kRows * 4) {
      const int row = x_rows[threadIdx.x / 4], chunk = int(threadIdx.x) % 4 * 16;
      const int8_t* codes = scratch.codes + int64_t(row) * linear.inputs + group * 64 + chunk;
      copy_async(stage + Tile<Format>::kCodesAt + threadIdx.x * 16, codes);
    } else if (threadIdx.x < kRows * 5) {
      const int at = int(threadIdx.x) - kRows * 4;
      copy_async_word(stage + Tile<Format>::kScalesAt + at * 4, scratch.scales + int64_t(x_rows[at]) * groups + group);
    }
  });
  if (is_refused(linear)) return;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = warp_row + tile * 8 + 2 * t + i % 2;
      if (at >= count) continue;
      const LinearArgs one = pair_of<T>(args, pair_of_row[at], expert);
      const int n = g + i / 2 * 8, first = block + warp_block;
      if (linear.epilogue == kSiluMul) {
        if (first * 16 < linear.outputs) finish_silu<T>(one, 0, first / 2 * 16 + n, acc[0][tile][i], acc[1][tile][i]);
        continue;
      }
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const int output = (first + b) * 16 + n;
        if (output < linear.outputs) finish<T>(one, 0, output, acc[b][tile][i]);
      }
    }
  }
}

struct Sizes {
  int64_t x_rows, codes, scales, pairs, begins;  // bytes but the first
};

Sizes sizes_of(int64_t rows, int64_t inputs, int64_t experts, int64_t chosen, bool own_rows) {
  const int64_t x_rows = own_rows ? rows * chosen : rows;
  return {x_rows, aligned(x_rows * inputs), aligned(x_rows * (inputs / 64) * 4), aligned(rows * chosen * 4),
          aligned((experts + 1) * 4)};
}

template <typename T, WeightFormat Format>
void launch_format(const ExpertsArgs& args, const Scratch& scratch, int64_t x_rows, cudaStream_t stream) {
  const LinearArgs& linear = args.linear;
  const float factor = Format == WeightFormat::LinearW4 ? 0.0625f : 1.0f;  // codes reach the tensor cores times 16
  launch(sort_kernel, dim3(1), dim3(1024), size_t(args.experts) * 4, stream, args, scratch);
  launch(quantize_kernel<T>, dim3(unsigned(x_rows)), dim3(linear.inputs >= 2048 ? 256 : 128), 0, stream, args, scratch,
         factor);
  const int pairs = linear.rows * args.chosen, most_tiles = min(pairs, args.experts) + pairs / kRows;
  const unsigned columns = unsigned((linear.outputs + 16 * Tile<Format>::kBlocks - 1) / (16 * Tile<Format>::kBlocks));
  launch(experts_gemm_kernel<T, Format>, dim3(columns, unsigned(most_tiles)), dim3(Tile<Format>::kThreads),
         Tile<Format>::kBytes, stream, args, scratch);
}

}  // namespace

int64_t experts_scratch_bytes(int64_t rows, int64_t inputs, int64_t experts, int64_t chosen, bool own_rows) {
  const Sizes sizes = sizes_of(rows, inputs, experts, chosen, own_rows);
  return sizes.codes + sizes.scales + sizes.pairs + 2 * sizes.begins;
}

void launch_experts_gemm(Elem elem, WeightFormat format, const ExpertsArgs& args, void* memory, cudaStream_t stream) {
  const Sizes sizes = sizes_of(args.linear.rows, args.linear.inputs, args.experts, args.chosen, args.own_rows);
  auto* bytes = static_cast<std::byte*>(memory);
  const auto take = [&](int64_t count) {
    auto* const begin = bytes;
    bytes += count;
    return begin;
  };
  Scratch scratch{};
  scratch.codes = reinterpret_cast<int8_t*>(take(sizes.codes));
  scratch.scales = reinterpret_cast<float*>(take(sizes.scales));
  scratch.pairs = reinterpret_cast<int*>(take(sizes.pairs));
  scratch.pair_begin = reinterpret_cast<int*>(take(sizes.begins));
  scratch.tile_begin = reinterpret_cast<int*>(take(sizes.begins));
  if (elem == kF16 && format == WeightFormat::LinearW4)
    launch_format<__half, WeightFormat::LinearW4>(args, scratch, sizes.x_rows, stream);
  if (elem == kF16 && format == WeightFormat::LinearW8)
    launch_format<__half, WeightFormat::LinearW8>(args, scratch, sizes.x_rows, stream);
  if (elem == kF32 && format == WeightFormat::LinearW4)
    launch_format<float, WeightFormat::LinearW4>(args, scratch, sizes.x_rows, stream);
  if (elem == kF32 && format == WeightFormat::LinearW8)
    launch_format<float, WeightFormat::LinearW8>(args, scratch, sizes.x_rows, stream);
}

}  // namespace tcim_lite::cuda
