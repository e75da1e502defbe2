// A Linear of many rows and quantised weights: tiles of 128 outputs by 64 or 128 rows on the int8 tensor cores. A stage
// of the pipeline is one group of 64 inputs, whose exact integer sums are scaled into fp32 sums at once.
#include "backends/cuda/kernels/linear_items.cuh"
#include "backends/cuda/kernels/prepared_row.cuh"

namespace tcim_lite::cuda {
namespace {

constexpr int kThreads = 256, kStages = 4;
constexpr int kBlocks = 8;      // of 16 outputs in a tile
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

template <WeightFormat Format, int Rows>
constexpr int kStageBytes = kBlocks * kItemBytes<Format> + Rows * 64 + Rows * 4;

template <WeightFormat Format, int Rows>
__device__ __forceinline__ void fetch(char* stage, const LinearArgs& args, const GemmScratch& scratch, int padded_rows,
                                      int group, int groups, int64_t block, int blocks, int row) {
  constexpr int kItem = kItemBytes<Format>, kChunks = kItem / 16;
  const char* weights = static_cast<const char*>(args.weights);
  for (int i = threadIdx.x; i < kBlocks * kChunks; i += kThreads) {
    const int64_t from = min(block + i / kChunks, int64_t(blocks - 1));
    copy_async(stage + i * 16, weights + (from * groups + group) * kItem + i % kChunks * 16);
  }
  stage += kBlocks * kItem;
  for (int i = threadIdx.x; i < Rows * 4; i += kThreads) {
    copy_async(stage + i * 16, scratch.codes + int64_t(row + i / 4) * args.inputs + group * 64 + i % 4 * 16);
  }
  stage += Rows * 64;
  if (threadIdx.x < Rows / 4) {
    copy_async(stage + threadIdx.x * 16, scratch.scales + int64_t(group) * padded_rows + row + threadIdx.x * 4);
  }
}

template <typename T, WeightFormat Format, int Rows>
__global__ void __launch_bounds__(kThreads, Rows == 64 ? 2 : 1)
    gemm_kernel(LinearArgs args, GemmScratch scratch, int padded_rows) {
  constexpr int kTiles = Rows / 16;  // of 8 rows, of a warp
  constexpr int kItem = kItemBytes<Format>;
  extern __shared__ __align__(128) char shared[];
  wait_for_inputs();
  launch_next();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int groups = args.inputs / 64, blocks = (args.outputs + 15) / 16;
  const int64_t block = int64_t(blockIdx.x) * kBlocks;
  const int row = blockIdx.y * Rows, rows = live_rows(args);
  if (row >= rows) return;
  const int warp_block = warp % 4 * 2, warp_row = warp / 4 * (Rows / 2);

  const auto stage_at = [&](int i) { return shared + i % kStages * kStageBytes<Format, Rows>; };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < groups) fetch<Format, Rows>(stage_at(i), args, scratch, padded_rows, i, groups, block, blocks, row);
    commit_copies();
  }
  float acc[2][kTiles][4] = {};
  for (int group = 0; group < groups; ++group) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    const int next = group + kStages - 1;
    if (next < groups)
      fetch<Format, Rows>(stage_at(next), args, scratch, padded_rows, next, groups, block, blocks, row);
    commit_copies();
    const char* stage = stage_at(group);
    uint32_t a[2][8];
    float scale[2][2];
#pragma unroll
    for (int b = 0; b < 2; ++b) load_item<Format>(stage + (warp_block + b) * kItem, lane, a[b], scale[b]);
    const char* x = stage + kBlocks * kItem;
    const float* x_scales = reinterpret_cast<const float*>(x + Rows * 64);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint4 v = *reinterpret_cast<const uint4*>(x + (warp_row + tile * 8 + g) * 64 + 16 * t);
      const float2 s = *reinterpret_cast<const float2*>(x_scales + warp_row + tile * 8 + 2 * t);
#pragma unroll
      for (int b = 0; b < 2; ++b) add_products(acc[b][tile], a[b], v, scale[b], s);
    }
  }
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

template <typename T, WeightFormat Format>
void launch_format(const LinearArgs& args, const GemmScratch& scratch, cudaStream_t stream) {
  const int padded_rows = int(padded(args.rows));
  const float factor = Format == WeightFormat::LinearW4 ? 0.0625f : 1.0f;  // codes reach the tensor cores times 16
  launch(quantize_kernel<T>, dim3(unsigned(args.rows)), dim3(args.inputs >= 2048 ? 256 : 128), 0, stream, args, scratch,
         padded_rows, factor);
  const unsigned columns = unsigned((args.outputs + 16 * kBlocks - 1) / (16 * kBlocks));
  const unsigned tiles = columns * unsigned((args.rows + 127) / 128);
  if (args.rows <= 64 || int(tiles) < multiprocessors()) {
    launch(gemm_kernel<T, Format, 64>, dim3(columns, unsigned((args.rows + 63) / 64)), dim3(kThreads),
           size_t(kStages) * kStageBytes<Format, 64>, stream, args, scratch, padded_rows);
  } else {
    launch(gemm_kernel<T, Format, 128>, dim3(columns, unsigned((args.rows + 127) / 128)), dim3(kThreads),
           size_t(kStages) * kStageBytes<Format, 128>, stream, args, scratch, padded_rows);
  }
}

template <typename T, WeightFormat Format>
void prepare_format() {
  CUDA_CHECK(cudaFuncSetAttribute(gemm_kernel<T, Format, 64>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  kStages * kStageBytes<Format, 64>));
  CUDA_CHECK(cudaFuncSetAttribute(gemm_kernel<T, Format, 128>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  kStages * kStageBytes<Format, 128>));
}

int64_t codes_bytes(int64_t rows, int64_t inputs) { return (padded(rows) * inputs + 255) / 256 * 256; }

}  // namespace

int64_t gemm_scratch_bytes(int64_t rows, int64_t inputs) {
  const int64_t codes = codes_bytes(rows, inputs) + padded(rows) * (inputs / 64) * 4;
  const int64_t halves = linear_wgmma_supports(kF16) ? padded(rows) * inputs * 2 : 0;
  return codes > halves ? codes : halves;
}

void launch_linear_gemm(Elem elem, WeightFormat format, const LinearArgs& args, void* memory, cudaStream_t stream) {
  if (linear_wgmma_supports(elem)) return launch_linear_wgmma(format, args, memory, stream);
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
}

void prepare_linear_gemm() {
  prepare_format<__half, WeightFormat::LinearW4>();
  prepare_format<__half, WeightFormat::LinearW8>();
  prepare_format<float, WeightFormat::LinearW4>();
  prepare_format<float, WeightFormat::LinearW8>();
}

}  // namespace tcim_lite::cuda
