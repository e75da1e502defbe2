// A Linear of many rows and quantised weights: tiles of 128 outputs by 64 or 128 rows on the int8 tensor cores. A stage
// of the pipeline is one group of 64 inputs, whose exact integer sums are scaled into fp32 sums at once.
#include "backends/cuda/kernels/linear_items.cuh"
#include "backends/cuda/kernels/prepared_row.cuh"

namespace tcim_lite::cuda {
namespace {

constexpr int kMostRows = 128;  // of a tile

struct GemmScratch {
  int8_t* codes;
  float* scales;
};

int64_t padded(int64_t rows) { return (rows + kMostRows - 1) / kMostRows * kMostRows; }

// codes [rows, inputs], scales [inputs / 64, padded rows].
template <typename T>
__global__ void quantize_kernel(LinearArgs args, GemmScratch scratch, int padded_rows, float factor) {
  __shared__ float shared[33];
  wait_for_inputs();
  launch_next();
  const int row = blockIdx.x;
  if (row >= live_rows(args)) return;
  const PreparedRow<T> x(args, row, shared);
  for (int first = 0; first < args.inputs; first += blockDim.x * 8) {
    const int k = first + int(threadIdx.x) * 8;
    const bool inside = k < args.inputs;
    float v[8] = {};
    if (inside) x.load(k, v);
    uint2 codes;
    const float scale = quantize_group(v, codes);
    if (!inside) continue;
    *reinterpret_cast<uint2*>(scratch.codes + int64_t(row) * args.inputs + k) = codes;
    if (k % 64 == 0) scratch.scales[int64_t(k / 64) * padded_rows + row] = scale * factor;
  }
}

template <typename T, WeightFormat Format, int Rows>
__global__ void __launch_bounds__(ItemTile<Format, Rows>::kThreads, Rows == 64 ? 2 : 1)
    gemm_kernel(LinearArgs args, GemmScratch scratch, int padded_rows) {
  using Tile = ItemTile<Format, Rows>;
  constexpr int kTiles = Rows / 16;  // of 8 rows, of a warp
  extern __shared__ __align__(128) char shared[];
  wait_for_inputs();
  launch_next();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int groups = args.inputs / 64, blocks = (args.outputs + 15) / 16;
  const int64_t block = int64_t(blockIdx.x) * Tile::kBlocks;
  const int row = blockIdx.y * Rows, rows = live_rows(args);
  if (row >= rows) return;
  const int warp_block = warp % 4 * 2, warp_row = warp / 4 * (Rows / 2);

  float acc[2][kTiles][4] = {};
  multiply_groups<Format, Rows>(acc, shared, groups, [&](char* stage, int group) {
    fetch_items<Tile>(stage, static_cast<const char*>(args.weights), block, blocks, group, groups);
    for (int i = threadIdx.x; i < Rows * 4; i += Tile::kThreads) {
      const int8_t* codes = scratch.codes + int64_t(row + i / 4) * args.inputs + group * 64 + i % 4 * 16;
      copy_async(stage + Tile::kCodesAt + i * 16, codes);
    }
    if (threadIdx.x < Rows / 4) {
      const float* scales = scratch.scales + int64_t(group) * padded_rows + row + threadIdx.x * 4;
      copy_async(stage + Tile::kScalesAt + threadIdx.x * 16, scales);
    }
  });
  if (is_refused(args)) return;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = row + warp_row + tile * 8 + 2 * t + i % 2;
      if (at >= rows) continue;
      const int n = g + i / 2 * 8;
      const int64_t first = block + warp_block;
      if (args.epilogue == kSiluMul) {
        if (first * 16 < args.outputs)
          finish_silu<T>(args, at, int(first / 2) * 16 + n, acc[0][tile][i], acc[1][tile][i]);
        continue;
      }
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const int64_t output = (first + b) * 16 + n;
        if (output < args.outputs) finish<T>(args, at, int(output), acc[b][tile][i]);
      }
    }
  }
}

template <typename T, WeightFormat Format, int Rows>
void launch_tiles(const LinearArgs& args, const GemmScratch& scratch, cudaStream_t stream) {
  using Tile = ItemTile<Format, Rows>;
  const unsigned columns = unsigned((args.outputs + 16 * Tile::kBlocks - 1) / (16 * Tile::kBlocks));
  launch(gemm_kernel<T, Format, Rows>, dim3(columns, unsigned((args.rows + Rows - 1) / Rows)), dim3(Tile::kThreads),
         Tile::kBytes, stream, args, scratch, int(padded(args.rows)));
}

template <typename T, WeightFormat Format>
void launch_format(const LinearArgs& args, const GemmScratch& scratch, cudaStream_t stream) {
  const float factor = Format == WeightFormat::LinearW4 ? 0.0625f : 1.0f;  // codes reach the tensor cores times 16
  launch(quantize_kernel<T>, dim3(unsigned(args.rows)), dim3(args.inputs >= 2048 ? 256 : 128), 0, stream, args, scratch,
         int(padded(args.rows)), factor);
  const int64_t tiles = ((args.outputs + 127) / 128) * ((args.rows + 127) / 128);
  if (args.rows <= 64 || tiles < multiprocessors()) {
    launch_tiles<T, Format, 64>(args, scratch, stream);
  } else {
    launch_tiles<T, Format, 128>(args, scratch, stream);
  }
}

template <typename T, WeightFormat Format>
void prepare_format() {
  CUDA_CHECK(cudaFuncSetAttribute(gemm_kernel<T, Format, 64>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  ItemTile<Format, 64>::kBytes));
  CUDA_CHECK(cudaFuncSetAttribute(gemm_kernel<T, Format, 128>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  ItemTile<Format, 128>::kBytes));
}

int64_t codes_bytes(int64_t rows, int64_t inputs) { return (padded(rows) * inputs + 255) / 256 * 256; }

}  // namespace

int64_t gemm_scratch_bytes(int64_t rows, int64_t inputs) {
  const int64_t codes = codes_bytes(rows, inputs) + padded(rows) * (inputs / 64) * 4;
  const int64_t halves = linear_wgmma_supports(kF16) ? wgmma_operand_bytes(rows, inputs) : 0;
  return codes > halves ? codes : halves;
}

bool launch_linear_gemm(Elem elem, WeightFormat format, const LinearArgs& args, bool wgmma, void* memory,
                        cudaStream_t stream) {
  if (wgmma && linear_wgmma_supports(elem)) return launch_linear_wgmma(format, args, memory, stream);
  auto* bytes = static_cast<std::byte*>(memory);
  const GemmScratch scratch{reinterpret_cast<int8_t*>(bytes),
                            reinterpret_cast<float*>(bytes + codes_bytes(args.rows, args.inputs))};
  if (elem == kF16 && format == WeightFormat::LinearW4)
    launch_format<__half, WeightFormat::LinearW4>(args, scratch, stream);
  if (elem == kF16 && format == WeightFormat::LinearW8)
    launch_format<__half, WeightFormat::LinearW8>(args, scratch, stream);
  if (elem == kF32 && format == WeightFormat::LinearW4)
    launch_format<float, WeightFormat::LinearW4>(args, scratch, stream);
  if (elem == kF32 && format == WeightFormat::LinearW8)
    launch_format<float, WeightFormat::LinearW8>(args, scratch, stream);
  return false;
}

void prepare_linear_gemm() {
  prepare_format<__half, WeightFormat::LinearW4>();
  prepare_format<__half, WeightFormat::LinearW8>();
  prepare_format<float, WeightFormat::LinearW4>();
  prepare_format<float, WeightFormat::LinearW8>();
}

}  // namespace tcim_lite::cuda
