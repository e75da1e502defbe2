#include <algorithm>

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

// Rows: 1, or kMostChainRows for any number from 2 on.
template <WeightFormat Format, int Rows>
constexpr int kStages = Format == WeightFormat::LinearF16 && Rows > 1 ? 4 : 5;

// What a phase has to itself; the ring lies before it.
template <WeightFormat Format, int Rows>
union PhaseShared {
  struct {
    ChainSums<Rows> sums;
    __align__(16) float scratch[Rows * kChainWarps];
    __align__(16) char rows[kChainWarps][ChainRows<Format, Rows>::kBytes];
  } linear;
  ChainAttentionShared attention;
};

constexpr int kPhaseWords = sizeof(ChainPhase) / 4;
static_assert(sizeof(ChainPhase) % 4 == 0 && kPhaseWords + 4 * kMostChainRows <= kChainThreads);

template <WeightFormat Format, int Rows>
struct ChainShared {
  __align__(128) char rings[kChainWarps][ChainWeights<Format, kStages<Format, Rows>>::kBytes];
  PhaseShared<Format, Rows> own;
  ChainPlace places[kMostPhases];
  ChainPhase phases[2];  // this one and the next
  void* caches[2][2 * kMostChainRows];
  ChainUnit unit;
};
template <WeightFormat Format, int Rows>
constexpr size_t kSharedBytes = sizeof(ChainShared<Format, Rows>);

template <WeightFormat Format, int Rows>
__global__ void __launch_bounds__(kChainThreads, 1) chain_kernel(const __grid_constant__ ChainArgs args) {
  extern __shared__ __align__(128) char shared[];
  auto& s = *reinterpret_cast<ChainShared<Format, Rows>*>(shared);
  // Parameters are read as memory: a constant cache that misses would stop a warp for every phase.
  const ChainArgs* memory = &args;
  asm volatile("" : "+l"(memory));
  // While a phase runs the next one comes into shared memory; while attention does, the caches of the next attention.
  const int thread = threadIdx.x, cache_words = 4 * args.slots, cache_word = thread - kPhaseWords;
  const auto word_of = [&](int phase, int attention) {
    return cache_word < 0 ? reinterpret_cast<const uint32_t*>(memory->phases + phase)[thread]
                          : reinterpret_cast<const uint32_t*>(memory->caches)[attention * cache_words + cache_word];
  };
  const auto keep_word = [&](int phase, int attention, uint32_t word) {
    if (cache_word < 0) {
      reinterpret_cast<uint32_t*>(&s.phases[phase % 2])[thread] = word;
    } else {
      reinterpret_cast<uint32_t*>(s.caches[attention % 2])[cache_word] = word;
    }
  };
  for (int p = threadIdx.x; p < args.count; p += kChainThreads) s.places[p] = place_of(memory->phases[p]);
  if (cache_word < cache_words) keep_word(0, 0, word_of(0, 0));
  if (threadIdx.x == 0) s.unit = unit_of(args);
  if (*args.refused != 0) return;
  __syncthreads();
  ChainWeights<Format, kStages<Format, Rows>> weights(s.places, args.count, s.rings[threadIdx.x / 32]);
  const ChainRotation rotation = load_rotation(args, s.unit);
  const int rows = Rows == 1 ? 1 : args.rows;
  int attentions = 0;
  for (int p = 0; p < args.count; ++p) {
    const ChainPhase& phase = s.phases[p % 2];
    const bool is_attention = phase.kind == ChainPhase::Kind::Attention;
    attentions += is_attention;  // so many have begun
    uint32_t next = 0;
    const bool fetches =
        cache_word < 0 ? p + 1 < args.count : cache_word < cache_words && is_attention && attentions < args.attentions;
    if (fetches) next = word_of(p + 1, attentions);
    const auto ready = [&] { wait_for_phase(args.barrier, p); };
    if (is_attention) {
      attend(args, phase.attention, s.caches[(attentions - 1) % 2], s.own.attention, s.unit, rotation,
             activation_scale<Format>(1.0f), ready);
    } else if (Rows > 1 && phase.kind == ChainPhase::Kind::Quantize) {
      ready();
      quantize_rows<Format>(phase.quantize, rows);
    } else {
      const ChainLinear& linear = phase.linear;
      auto& own = s.own.linear;
      static_assert(sizeof(own.sums.values[0][0]) >= sizeof(float) * ChainRows<Format, Rows>::kNormFloats);
      float* norm = own.sums.values[0][threadIdx.x / 32][0];  // no sums before the rows are there
      ChainRows<Format, Rows> prepared(linear, rows, own.rows[threadIdx.x / 32], norm);
      if (p + 1 < args.count && s.places[p + 1].tiles < 0) prefetch_attention(args, s.unit, s.caches[attentions % 2]);
      ready();
      prepared.start(own.scratch);
      if (linear.blocks == 2) {
        multiply_tiles<Format, Rows, 2>(linear, rows, weights, prepared, own.sums);
      } else {
        multiply_tiles<Format, Rows, 1>(linear, rows, weights, prepared, own.sums);
      }
    }
    if (fetches) keep_word(p + 1, attentions, next);
    arrive(args.barrier, p + 1 == args.count, unsigned(args.count));
    weights.give_up();  // where it holds up nobody
  }
  wait_for_copies<0>();
}

constexpr size_t kMostShared = 227 << 10;  // of a block, from sm_90 on

template <WeightFormat Format, int Rows>
void launch_rows(const ChainArgs& args, cudaStream_t stream) {
  static_assert(kSharedBytes<Format, Rows> <= kMostShared);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;  // all blocks run at once, or the barrier would wait for ever
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(unsigned(multiprocessors()));
  config.blockDim = dim3(kChainThreads);
  config.dynamicSmemBytes = kSharedBytes<Format, Rows>;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  CUDA_CHECK(cudaLaunchKernelEx(&config, chain_kernel<Format, Rows>, args));
}

template <WeightFormat Format>
void launch_format(const ChainArgs& args, cudaStream_t stream) {
  if (args.rows == 1) return launch_rows<Format, 1>(args, stream);
  launch_rows<Format, kMostChainRows>(args, stream);
}

template <WeightFormat Format, int Rows>
void prepare_rows() {
  CUDA_CHECK(cudaFuncSetAttribute(chain_kernel<Format, Rows>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  int(kSharedBytes<Format, Rows>)));
}
template <WeightFormat Format>
void prepare_format() {
  prepare_rows<Format, 1>();
  prepare_rows<Format, kMostChainRows>();
}

// Of 16 * blocks outputs, those of the block that has most of them; in outputs.
int most_of_a_block(int outputs, int blocks) {
  const int tiles = (outputs + 16 * blocks - 1) / (16 * blocks), sms = multiprocessors();
  return (tiles + sms - 1) / sms * 16 * blocks;
}

}  // namespace

// quantize_rows() takes a group a warp.
bool chain_runs_here() {
  return most_shared() >= kMostShared && multiprocessors() * kChainWarps * 64 >= kMostChainInputs;
}

bool place_in_chain(WeightFormat format, ChainLinear& linear) {
  if (format != WeightFormat::LinearW4 && format != WeightFormat::LinearW8 && format != WeightFormat::LinearF16)
    return false;
  // Tiles of two blocks of 16 outputs need half as many meetings of the warps.
  const bool two = linear.outputs % 32 == 0 && most_of_a_block(linear.outputs, 2) <= most_of_a_block(linear.outputs, 1);
  linear.blocks = linear.epilogue == kSiluMul || two ? 2 : 1;
  linear.inverse_inputs = 1.0f / float(linear.inputs);
  linear.tiles = (linear.outputs + 16 * linear.blocks - 1) / (16 * linear.blocks);
  if (linear.epilogue == kSiluMul && linear.outputs % 32 != 0) return false;
  return linear.inputs % 64 == 0 && linear.inputs <= kMostChainInputs && linear.x_stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(linear.x) % 16 == 0;
}

bool chain_supports_heads(int rows, int heads_per_kv, int kv_heads, int head_dim) {
  return heads_per_kv <= kMostChainHeads && head_dim == kChainHeadDim && rows * kv_heads <= multiprocessors();
}

int chain_splits(int pairs) { return std::max(1, multiprocessors() / pairs); }

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
