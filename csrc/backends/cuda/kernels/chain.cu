#include "backends/cuda/kernels/chain.h"
#include "backends/cuda/kernels/chain_attention.cuh"
#include "backends/cuda/kernels/chain_linear.cuh"

namespace tcim_lite::cuda {
namespace {

// The grid's blocks meet at the end of every phase; the counter is 0 before a run and after it.
__device__ __forceinline__ void arrive(unsigned* barrier, bool is_last, unsigned meetings) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (!is_last) {
    asm volatile("red.add.release.gpu.global.u32 [%0], 1;" ::"l"(barrier) : "memory");
    return;
  }
  unsigned before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(barrier) : "memory");
  if (before == gridDim.x * meetings - 1) *barrier = 0;
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
constexpr size_t kMostRowBytes =
    Format == WeightFormat::LinearF16 ? 2 * kMostChainInputs : kMostChainInputs + kMostChainInputs / 64 * 4;

// What a phase has to itself; the ring lies before it.
template <WeightFormat Format>
union PhaseShared {
  struct {
    float sums[2 * kChainWarps * 2 * 16];
    __align__(16) float scratch[kChainWarps];
    __align__(16) char x[kMostRowBytes<Format>];
  } linear;
  ChainAttentionShared attention;
};

template <WeightFormat Format>
struct ChainShared {
  __align__(128) char rings[kChainWarps][ChainWeights<Format>::kBytes];
  PhaseShared<Format> own;
  ChainPlace places[kMostPhases];
  ChainPhase phases[2];  // this one and the next
};
template <WeightFormat Format>
constexpr size_t kSharedBytes = sizeof(ChainShared<Format>);

constexpr int kPhaseWords = sizeof(ChainPhase) / 4;
static_assert(sizeof(ChainPhase) % 4 == 0 && kPhaseWords <= kChainThreads);

template <WeightFormat Format>
__global__ void __launch_bounds__(kChainThreads, 1) chain_kernel(const __grid_constant__ ChainArgs args) {
  extern __shared__ __align__(128) char shared[];
  auto& s = *reinterpret_cast<ChainShared<Format>*>(shared);
  // Parameters are read as memory: a constant cache that misses would stop a warp for every phase.
  const ChainPhase* phases = args.phases;
  asm volatile("" : "+l"(phases));
  const auto word_of = [&](int phase) { return reinterpret_cast<const uint32_t*>(phases + phase)[threadIdx.x]; };
  const auto keep_word = [&](int phase, uint32_t word) {
    reinterpret_cast<uint32_t*>(&s.phases[phase % 2])[threadIdx.x] = word;
  };
  for (int p = threadIdx.x; p < args.count; p += kChainThreads) s.places[p] = place_of(phases[p]);
  if (threadIdx.x < kPhaseWords) keep_word(0, word_of(0));
  if (*args.refused != 0) return;
  __syncthreads();
  ChainWeights<Format> weights(s.places, args.count, s.rings[threadIdx.x / 32]);
  const int valid = args.valid == nullptr ? 0 : *args.valid;
  const bool writes = args.current != nullptr && *args.current >= 1;
  const Rotation rotation = load_rotation(args, valid);
  for (int p = 0; p < args.count; ++p) {
    uint32_t next = 0;
    const bool fetches = threadIdx.x < kPhaseWords && p + 1 < args.count;
    if (fetches) next = word_of(p + 1);
    const auto ready = [&] { wait_for_phase(args.barrier, p); };
    const ChainPhase& phase = s.phases[p % 2];
    if (phase.is_attention) {
      attend(args, phase.attention, s.own.attention, rotation, valid, writes, ready);
    } else {
      const ChainLinear& linear = phase.linear;
      auto& own = s.own.linear;
      auto* scales = reinterpret_cast<float*>(own.x + kMostChainInputs);
      prepare_row<Format>(linear, own.x, scales, own.scratch, ready);
      if (linear.blocks == 2) {
        multiply_tiles<Format, 2>(linear, weights, own.x, scales, own.sums);
      } else {
        multiply_tiles<Format, 1>(linear, weights, own.x, scales, own.sums);
      }
    }
    if (fetches) keep_word(p + 1, next);
    arrive(args.barrier, p + 1 == args.count, unsigned(args.count));
    weights.give_up();  // where it holds up nobody
  }
  wait_for_copies<0>();
}

template <WeightFormat Format>
void launch_format(const ChainArgs& args, cudaStream_t stream) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;  // all blocks run at once, or the barrier would wait for ever
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(unsigned(multiprocessors()));
  config.blockDim = dim3(kChainThreads);
  config.dynamicSmemBytes = kSharedBytes<Format>;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  CUDA_CHECK(cudaLaunchKernelEx(&config, chain_kernel<Format>, args));
}

constexpr int kManyTiles = 8;              // of a block
constexpr size_t kMostShared = 227 << 10;  // of a block, from sm_90 on
static_assert(kSharedBytes<WeightFormat::LinearW4> <= kMostShared);
static_assert(kSharedBytes<WeightFormat::LinearW8> <= kMostShared);
static_assert(kSharedBytes<WeightFormat::LinearF16> <= kMostShared);

template <WeightFormat Format>
void prepare_format() {
  CUDA_CHECK(cudaFuncSetAttribute(chain_kernel<Format>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  int(kSharedBytes<Format>)));
}

}  // namespace

bool chain_runs_here() { return most_shared() >= kMostShared; }

bool place_in_chain(WeightFormat format, ChainLinear& linear) {
  if (format != WeightFormat::LinearW4 && format != WeightFormat::LinearW8 && format != WeightFormat::LinearF16)
    return false;
  // Two blocks of 16 outputs a tile also where there are many tiles: half as many meetings of the warps.
  const bool many = linear.epilogue == kStore && linear.outputs >= 32 * kManyTiles * multiprocessors();
  linear.blocks = linear.epilogue == kSiluMul || (many && linear.outputs % 32 == 0) ? 2 : 1;
  linear.tiles = (linear.outputs + 16 * linear.blocks - 1) / (16 * linear.blocks);
  if (linear.epilogue == kSiluMul && linear.outputs % 32 != 0) return false;
  return linear.inputs % 64 == 0 && linear.inputs <= kMostChainInputs &&
         reinterpret_cast<uintptr_t>(linear.x) % 16 == 0;
}

bool chain_supports_heads(int heads_per_kv, int kv_heads, int head_dim) {
  return heads_per_kv <= kMostChainHeads && head_dim == kChainHeadDim && kv_heads <= multiprocessors();
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
