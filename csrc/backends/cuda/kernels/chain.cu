#include "backends/cuda/kernels/chain.h"

#include "backends/cuda/kernels/chain_attention.cuh"
#include "backends/cuda/kernels/chain_linear.cuh"

namespace tcim_lite::cuda {
namespace {

// The grid's blocks meet `phases` times in a run; the counter is 0 before it and after it.
__device__ __forceinline__ void arrive(unsigned* barrier, unsigned meetings) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  const unsigned all = gridDim.x * meetings;
  unsigned before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(barrier) : "memory");
  if (before == all - 1) *barrier = 0;
}

__device__ __forceinline__ void wait_for_phase(const unsigned* barrier, int phase) {
  if (phase == 0) return;
  if (threadIdx.x == 0) {
    const unsigned wanted = gridDim.x * unsigned(phase);
    unsigned now;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(barrier) : "memory");
    } while (now < wanted);
  }
  __syncthreads();
}

template <WeightFormat Format>
constexpr size_t kMostRowBytes = Format == WeightFormat::LinearF16 ? 2 * kMostChainInputs
                                                                   : kMostChainInputs + kMostChainInputs / 64 * 4;

// What a phase has to itself; the ring lies before it.
template <WeightFormat Format, int Heads>
union PhaseShared {
  struct {
    float sums[2 * kChainWarps * 2 * 16];
    float scratch[kChainWarps];
    __align__(16) char x[kMostRowBytes<Format>];
  } linear;
  ChainAttentionShared<Heads> attention;
};

template <WeightFormat Format, int Heads>
constexpr size_t kSharedBytes = kChainWarps * ChainWeights<Format>::kBytes + sizeof(PhaseShared<Format, Heads>);

template <WeightFormat Format, int Heads>
__global__ void __launch_bounds__(kChainThreads, 1) chain_kernel(const __grid_constant__ ChainArgs args) {
  extern __shared__ __align__(128) char shared[];
  auto& own = *reinterpret_cast<PhaseShared<Format, Heads>*>(shared + kChainWarps * ChainWeights<Format>::kBytes);
  if (*args.refused != 0) return;
  ChainWeights<Format> weights(args, shared + threadIdx.x / 32 * ChainWeights<Format>::kBytes);
  const int valid = args.valid == nullptr ? 0 : *args.valid;
  const Rotation rotation = load_rotation(args, valid);
  for (int p = 0; p < args.count; ++p) {
    const auto ready = [&] { wait_for_phase(args.barrier, p); };
    if (args.phases[p].is_attention) {
      attend<Heads>(args, args.phases[p].attention, own.attention, rotation, valid, ready);
    } else {
      const ChainLinear& linear = args.phases[p].linear;
      auto* scales = reinterpret_cast<float*>(own.linear.x + kMostChainInputs);
      prepare_row<Format>(linear, own.linear.x, scales, own.linear.scratch, ready);
      if (linear.epilogue == kSiluMul) {
        multiply_tiles<Format, 2>(linear, weights, own.linear.x, scales, own.linear.sums);
      } else {
        multiply_tiles<Format, 1>(linear, weights, own.linear.x, scales, own.linear.sums);
      }
    }
    arrive(args.barrier, unsigned(args.count));
  }
  wait_for_copies<0>();
}

template <WeightFormat Format, int Heads>
void launch_heads_of(const ChainArgs& args, cudaStream_t stream) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;  // all blocks run at once, or the barrier would wait for ever
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(unsigned(multiprocessors()));
  config.blockDim = dim3(kChainThreads);
  config.dynamicSmemBytes = kSharedBytes<Format, Heads>;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  CUDA_CHECK(cudaLaunchKernelEx(&config, chain_kernel<Format, Heads>, args));
}

template <WeightFormat Format>
void launch_format(const ChainArgs& args, cudaStream_t stream) {
  if (args.heads_per_kv == 4) return launch_heads_of<Format, 4>(args, stream);
  launch_heads_of<Format, 2>(args, stream);
}

constexpr size_t kMostShared = 227 << 10;  // of a block, from sm_90 on
static_assert(kSharedBytes<WeightFormat::LinearW4, 4> <= kMostShared);
static_assert(kSharedBytes<WeightFormat::LinearW8, 4> <= kMostShared);
static_assert(kSharedBytes<WeightFormat::LinearF16, 4> <= kMostShared);

template <WeightFormat Format>
void prepare_format() {
  CUDA_CHECK(cudaFuncSetAttribute(chain_kernel<Format, 2>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  int(kSharedBytes<Format, 2>)));
  CUDA_CHECK(cudaFuncSetAttribute(chain_kernel<Format, 4>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  int(kSharedBytes<Format, 4>)));
}

}  // namespace

bool chain_runs_here() { return most_shared() >= kMostShared; }

bool chain_supports(WeightFormat format, const ChainLinear& linear) {
  if (format != WeightFormat::LinearW4 && format != WeightFormat::LinearW8 && format != WeightFormat::LinearF16)
    return false;
  return linear.inputs % 64 == 0 && linear.inputs <= kMostChainInputs && reinterpret_cast<uintptr_t>(linear.x) % 16 == 0;
}

bool chain_supports_heads(int heads_per_kv, int kv_heads, int head_dim) {
  return (heads_per_kv == 2 || heads_per_kv == 4) && head_dim == kChainHeadDim && kv_heads <= multiprocessors();
}

int chain_splits(int kv_heads) { return multiprocessors() / kv_heads; }

void launch_chain(WeightFormat format, const ChainArgs& args, cudaStream_t stream) {
  if (format == WeightFormat::LinearW4) launch_format<WeightFormat::LinearW4>(args, stream);
  if (format == WeightFormat::LinearW8) launch_format<WeightFormat::LinearW8>(args, stream);
  if (format == WeightFormat::LinearF16) launch_format<WeightFormat::LinearF16>(args, stream);
  break_overlap();
}

void prepare_chain() {
  if (!chain_runs_here()) return;
  prepare_format<WeightFormat::LinearW4>();
  prepare_format<WeightFormat::LinearW8>();
  prepare_format<WeightFormat::LinearF16>();
}

}  // namespace tcim_lite::cuda
