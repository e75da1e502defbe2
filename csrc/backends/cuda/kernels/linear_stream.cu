// A Linear of up to eight rows: the weights pass once, from memory through a ring of asynchronous copies in shared
// memory to the tensor cores. Outputs are the rows of the A operand, activations its B operand.
//
// A block takes tiles of 16 outputs (a gate and an up tile with SiLU-mul), its warps every eighth group of 64 inputs;
// the warps' sums meet in shared memory. The ring is filled before the input is waited for, so that weights arrive
// while the kernel before this one drains and while the norm and the quantiser of the prologue run.
#include <algorithm>

#include "backends/cuda/kernels/linear_stream_rows.cuh"

namespace tcim_lite::cuda {
namespace {

using namespace stream;

template <WeightFormat Format>
struct Ring;
template <>
struct Ring<WeightFormat::LinearW4> {
  static constexpr int kItem = kItemW4, kStages = 8;
};
template <>
struct Ring<WeightFormat::LinearW8> {
  static constexpr int kItem = kItemW8, kStages = 6;
};
template <>
struct Ring<WeightFormat::LinearF16> {
  static constexpr int kItem = 2048, kStages = 4;
};

template <WeightFormat Format>
__device__ __forceinline__ void fetch(char* slot, const LinearArgs& args, int64_t block, int group, int groups,
                                      int lane) {
  const char* weights = static_cast<const char*>(args.weights);
  if constexpr (Format == WeightFormat::LinearF16) {
    const int g = lane / 4, t = lane % 4;
    const char* from = weights + ((block * 16 + g) * args.inputs + group * 64 + 8 * t) * 2;
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      copy_async(slot + part * 512 + lane * 16, from + int64_t(part % 2) * 16 * args.inputs + part / 2 * 64);
    }
  } else {
    const char* from = weights + (block * groups + group) * Ring<Format>::kItem;
#pragma unroll
    for (int at = 0; at < Ring<Format>::kItem / 512; ++at)
      copy_async(slot + at * 512 + lane * 16, from + at * 512 + lane * 16);
    constexpr int kScales = Ring<Format>::kItem / 512 * 512;
    if (lane * 16 < Ring<Format>::kItem - kScales) copy_async(slot + kScales + lane * 16, from + kScales + lane * 16);
  }
}

// acc += an item. One: a single row, whose sums are in columns of all lanes alike.
template <WeightFormat Format, bool One>
__device__ __forceinline__ void multiply(float (&acc)[4], const char* slot, const char* x, const float* scales,
                                         int group, int groups, int rows, int lane) {
  const int g = lane / 4, t = lane % 4;
  const int row = One ? 0 : min(g, rows - 1);
  const int stride = row_bytes(Format, groups * 64);
  if constexpr (Format == WeightFormat::LinearF16) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 a = *reinterpret_cast<const uint4*>(slot + half * 1024 + lane * 16);
      const uint4 b = *reinterpret_cast<const uint4*>(slot + half * 1024 + 512 + lane * 16);
      const uint4 v = *reinterpret_cast<const uint4*>(x + row * stride + group * 128 + half * 64 + 16 * t);
      mma_half(acc, a.x, b.x, a.y, b.y, v.x, v.y);
      mma_half(acc, a.z, b.z, a.w, b.w, v.z, v.w);
    }
  } else {
    const uint4 v = *reinterpret_cast<const uint4*>(x + row * stride + group * 64 + 16 * t);
    int dot[4] = {0, 0, 0, 0};
    float low, high;  // scales of outputs g and g + 8
    multiply_item<Format>(dot, low, high, slot, v, lane);
    const float s0 = scales[(One ? 0 : min(2 * t, rows - 1)) * groups + group];
    acc[0] = fmaf(float(dot[0]), low * s0, acc[0]);
    acc[2] = fmaf(float(dot[2]), high * s0, acc[2]);
    if constexpr (!One) {
      const float s1 = scales[min(2 * t + 1, rows - 1) * groups + group];
      acc[1] = fmaf(float(dot[1]), low * s1, acc[1]);
      acc[3] = fmaf(float(dot[3]), high * s1, acc[3]);
    }
  }
}

// Blocks: outputs / 16 of a tile.
template <WeightFormat Format, int Blocks, bool One>
__device__ __forceinline__ void stream_tiles(const LinearArgs& args, const Pass& pass) {
  constexpr int kItem = Ring<Format>::kItem, kStages = Ring<Format>::kStages, kColumns = One ? 1 : 8;
  extern __shared__ __align__(128) char shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int groups = args.inputs / 64;
  char* ring = shared + warp * kStages * kItem;
  char* x = shared + kWarps * kStages * kItem;
  float* scales = reinterpret_cast<float*>(x + pass.rows * row_bytes(Format, args.inputs));
  float* sums =
      scales + (Format == WeightFormat::LinearF16 ? 0 : pass.rows * groups);  // [2][kWarps][Blocks][kColumns][16]
  float* scratch = sums + 2 * kWarps * Blocks * kColumns * 16;

  launch_next();
  // What is fetched next: tile, group, block of the tile.
  int tile = blockIdx.x, group = warp, part = 0, stage = 0;
  const auto fetch_next = [&] {
    if (tile < pass.tiles && group < groups) {
      fetch<Format>(ring + stage * kItem, args, int64_t(tile) * Blocks + part, group, groups, lane);
      if (++part == Blocks) part = 0, group += kWarps;
      if (group >= groups) group = warp, tile += gridDim.x;
    }
    commit_copies();
    stage = stage + 1 == kStages ? 0 : stage + 1;
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) fetch_next();

  // The norm's weights come from memory, too.
  for (int k = threadIdx.x * 32; args.norm_weight != nullptr && k < args.inputs; k += kThreads * 32)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(args.norm_weight + k));

  wait_for_inputs();
  const int rows = min(live_rows(args) - pass.first_row, pass.rows);
  if (rows <= 0) return;
  prepare_rows<Format, One>(args, pass, rows, x, scales, scratch);

  int slot = 0, buffer = 0;
  for (int at = blockIdx.x; at < pass.tiles; at += gridDim.x, buffer ^= 1) {
    const int row = threadIdx.x / 16, n = threadIdx.x % 16;
    // Fetched early: at the end nothing would hide its latency.
    float residual = 0;
    const bool adds =
        Blocks == 1 && args.epilogue == kAddResidual && row < rows && row < kColumns && at * 16 + n < args.outputs;
    if (adds)
      residual =
          load(static_cast<const __half*>(args.residual) + (pass.first_row + row) * args.residual_stride + at * 16 + n);
    float acc[Blocks][4] = {};
    for (int k = warp; k < groups; k += kWarps) {
#pragma unroll
      for (int b = 0; b < Blocks; ++b) {
        wait_for_copies<kStages - 2>();
        __syncwarp();
        multiply<Format, One>(acc[b], ring + slot * kItem, x, scales, k, groups, rows, lane);
        slot = slot + 1 == kStages ? 0 : slot + 1;
        fetch_next();
      }
    }
    float* mine = sums + (buffer * kWarps + warp) * Blocks * kColumns * 16;
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int b = 0; b < Blocks; ++b) {
      if (One && t != 0) continue;
      const int column = One ? 0 : 2 * t;
      mine[(b * kColumns + column) * 16 + g] = acc[b][0];
      mine[(b * kColumns + column) * 16 + g + 8] = acc[b][2];
      if constexpr (!One) {
        mine[(b * kColumns + column + 1) * 16 + g] = acc[b][1];
        mine[(b * kColumns + column + 1) * 16 + g + 8] = acc[b][3];
      }
    }
    __syncthreads();
    if (row >= rows || row >= kColumns || is_refused(args)) continue;
    float total[Blocks] = {};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
#pragma unroll
      for (int b = 0; b < Blocks; ++b)
        total[b] += sums[((buffer * kWarps + w) * Blocks + b) * kColumns * 16 + row * 16 + n];
    }
    if constexpr (Blocks == 2) {
      finish_silu<__half>(args, pass.first_row + row, at * 16 + n, total[0], total[1]);
    } else if (adds) {
      const float sum = args.bias == nullptr ? total[0] : total[0] + args.bias[at * 16 + n];
      store(static_cast<__half*>(args.y) + (pass.first_row + row) * args.y_stride + at * 16 + n,
            residual + rounded<__half>(sum));
    } else if (at * 16 + n < args.outputs) {
      finish<__half>(args, pass.first_row + row, at * 16 + n, total[0]);
    }
  }
}

template <WeightFormat Format, int Blocks, bool One>
__global__ void __launch_bounds__(kThreads) stream_kernel(LinearArgs args, Pass pass) {
  stream_tiles<Format, Blocks, One>(args, pass);
}

// Grid: (blocks of a pair, pairs). A pair is a token and one of its experts, whose matrix is chosen when the ids are
// there; two tokens that chose one expert find its weights in the second cache.
template <WeightFormat Format, int Blocks>
__global__ void __launch_bounds__(kThreads) stream_experts_kernel(ExpertsArgs experts, Pass pass) {
  wait_for_inputs();
  const int pair = blockIdx.y;
  if (pair / experts.chosen >= live_rows(experts.linear)) return;
  stream_tiles<Format, Blocks, true>(pair_of<__half>(experts, pair, expert_of(experts, pair)), pass);
}

template <WeightFormat Format>
size_t shared_bytes(int rows, int inputs, int blocks) {
  const int columns = rows == 1 ? 1 : 8;
  const size_t scales = Format == WeightFormat::LinearF16 ? 0 : size_t(rows) * (inputs / 64) * 4;
  return size_t(kWarps) * Ring<Format>::kStages * Ring<Format>::kItem + size_t(rows) * row_bytes(Format, inputs) +
         scales + size_t(2 * kWarps * blocks * columns * 16 + 33) * 4;
}

// As many blocks on each SM as keep the SMs equally busy, and the most of those.
int grid_of(int tiles) {
  const int sms = multiprocessors();
  int best = tiles, least = 1 << 30;
  for (int per_sm = 1; per_sm <= 3; ++per_sm) {
    const int rounds = (tiles + sms * per_sm - 1) / (sms * per_sm);
    if (rounds * per_sm > least) continue;
    least = rounds * per_sm;
    best = (tiles + rounds - 1) / rounds;
  }
  return best;
}

template <WeightFormat Format, int Blocks, bool One>
void launch_pass(const LinearArgs& args, const Pass& pass, cudaStream_t stream) {
  const size_t shared = shared_bytes<Format>(pass.rows, args.inputs, Blocks);
  launch(stream_kernel<Format, Blocks, One>, dim3(unsigned(grid_of(pass.tiles))), dim3(kThreads), shared, stream, args,
         pass);
}

template <WeightFormat Format>
void launch_format(const LinearArgs& args, cudaStream_t stream) {
  const int blocks = args.epilogue == kSiluMul ? 2 : 1;
  int rows = args.rows < kStreamRows ? args.rows : kStreamRows;
  while (rows > 1 && shared_bytes<Format>(rows, args.inputs, blocks) > most_shared()) --rows;
  for (int first = 0; first < args.rows; first += rows) {
    const Pass pass{first, args.rows - first < rows ? args.rows - first : rows,
                    (args.outputs + 16 * blocks - 1) / (16 * blocks)};
    const bool one = pass.rows == 1;
    if (blocks == 2 && one) launch_pass<Format, 2, true>(args, pass, stream);
    if (blocks == 2 && !one) launch_pass<Format, 2, false>(args, pass, stream);
    if (blocks == 1 && one) launch_pass<Format, 1, true>(args, pass, stream);
    if (blocks == 1 && !one) launch_pass<Format, 1, false>(args, pass, stream);
  }
}

template <WeightFormat Format, int Blocks>
void launch_pairs(const ExpertsArgs& args, cudaStream_t stream) {
  const int pairs = args.linear.rows * args.chosen, tiles = (args.linear.outputs + 16 * Blocks - 1) / (16 * Blocks);
  const int each = std::max(1, 3 * multiprocessors() / pairs), rounds = (tiles + each - 1) / each;
  const dim3 grid(unsigned((tiles + rounds - 1) / rounds), unsigned(pairs));
  launch(stream_experts_kernel<Format, Blocks>, grid, dim3(kThreads),
         shared_bytes<Format>(1, args.linear.inputs, Blocks), stream, args, Pass{0, 1, tiles});
}

template <WeightFormat Format>
void launch_experts_format(const ExpertsArgs& args, cudaStream_t stream) {
  if (args.linear.epilogue == kSiluMul) return launch_pairs<Format, 2>(args, stream);
  launch_pairs<Format, 1>(args, stream);
}

template <WeightFormat Format>
void prepare_format() {
  const auto allow = [](auto kernel) {
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(most_shared())));
  };
  allow(stream_kernel<Format, 1, true>);
  allow(stream_kernel<Format, 1, false>);
  allow(stream_kernel<Format, 2, true>);
  allow(stream_kernel<Format, 2, false>);
  allow(stream_experts_kernel<Format, 1>);
  allow(stream_experts_kernel<Format, 2>);
}

}  // namespace

bool linear_stream_supports(WeightFormat format, const LinearArgs& args) {
  if ((format != WeightFormat::LinearF16 && !has_items(format)) || args.inputs % 64 != 0) return false;
  if (reinterpret_cast<uintptr_t>(args.x) % 16 != 0 || args.x_stride % 8 != 0) return false;
  const int blocks = args.epilogue == kSiluMul ? 2 : 1;
  if (format == WeightFormat::LinearW4)
    return shared_bytes<WeightFormat::LinearW4>(1, args.inputs, blocks) <= most_shared();
  if (format == WeightFormat::LinearW8)
    return shared_bytes<WeightFormat::LinearW8>(1, args.inputs, blocks) <= most_shared();
  return shared_bytes<WeightFormat::LinearF16>(1, args.inputs, blocks) <= most_shared();
}

void launch_linear_stream(WeightFormat format, const LinearArgs& args, cudaStream_t stream) {
  if (format == WeightFormat::LinearW4) launch_format<WeightFormat::LinearW4>(args, stream);
  if (format == WeightFormat::LinearW8) launch_format<WeightFormat::LinearW8>(args, stream);
  if (format == WeightFormat::LinearF16) launch_format<WeightFormat::LinearF16>(args, stream);
}

void launch_experts_stream(WeightFormat format, const ExpertsArgs& args, cudaStream_t stream) {
  if (format == WeightFormat::LinearW4) launch_experts_format<WeightFormat::LinearW4>(args, stream);
  if (format == WeightFormat::LinearW8) launch_experts_format<WeightFormat::LinearW8>(args, stream);
  if (format == WeightFormat::LinearF16) launch_experts_format<WeightFormat::LinearF16>(args, stream);
}

void prepare_linear_stream() {
  prepare_format<WeightFormat::LinearW4>();
  prepare_format<WeightFormat::LinearW8>();
  prepare_format<WeightFormat::LinearF16>();
}

}  // namespace tcim_lite::cuda
