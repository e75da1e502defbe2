#include "backends/cuda/decode/kernel.h"
#include "backends/cuda/decode/phases.cuh"

namespace tcim_lite::cuda::decode {
namespace {

// The blocks of the grid meet before each phase with `meets` and at the end; the counter is 0 before and after a run.
template <typename Shape>
__device__ __forceinline__ void arrive(unsigned* barrier) {
  sync_warps<Shape>();
  if (threadIdx.x == 0) asm volatile("red.add.release.gpu.global.u32 [%0], 1;" ::"l"(barrier) : "memory");
}

// The last block to arrive resets the counter for the next run. Stored values become visible when the kernel ends.
template <typename Shape>
__device__ __forceinline__ void end_run(unsigned* barrier, unsigned meetings) {
  sync_warps<Shape>();
  if (threadIdx.x != 0) return;
  unsigned before;
  asm volatile("atom.add.relaxed.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(barrier) : "memory");
  if (before != gridDim.x * meetings - 1) return;
  barrier[0] = 0;
  barrier[1] += 1;
}

// A warp other than the one that arrived does the polling: that one still waits for its fence, and would delay the
// whole block.
template <typename Shape>
__device__ __forceinline__ void wait_for_all(const unsigned* barrier, int meetings) {
  if (threadIdx.x == 32) {
    const unsigned wanted = gridDim.x * unsigned(meetings);
    unsigned now;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(barrier) : "memory");
    } while (now < wanted);
  }
  sync_warps<Shape>();
}

// By one thread: a whole warp fetches, one lane gives up.
template <int Stages>
__device__ __forceinline__ void start_gates(RingGates<Stages>& gates) {
#pragma unroll 1
  for (int i = 0; i < Stages; ++i) gates.full[i].start(32), gates.empty[i].start(1);
}

constexpr int kPhaseWords = sizeof(Phase) / 4;
static_assert(sizeof(Phase) % 4 == 0 && kPhaseWords <= 32 * kMostWarps / 2);

template <typename Shape>
constexpr size_t kSharedBytes = sizeof(KernelShared<Shape>);

template <typename Shape>
__global__ void __launch_bounds__(Shape::kAllThreads, 1) program_kernel(const __grid_constant__ ProgramArgs args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // older GPUs have not the shared memory
  extern __shared__ __align__(128) char shared[];
  auto& s = *reinterpret_cast<KernelShared<Shape>*>(shared);
  constexpr bool kOne = Shape::kRows == 1;
  // Parameters are read as ordinary memory, because a miss of the constant cache would stall a warp in every phase.
  const ProgramArgs* memory = &args;
  asm volatile("" : "+l"(memory));
  // While a phase runs the next one comes into shared memory.
  const int thread = threadIdx.x;
  const auto word_of = [&](int phase) { return reinterpret_cast<const uint32_t*>(memory->phases + phase)[thread]; };
  const auto keep_word = [&](int phase, uint32_t word) {
    reinterpret_cast<uint32_t*>(&s.phases[phase % 2])[thread] = word;
  };
  for (int p = thread; p < args.count; p += Shape::kThreads) {
    s.places[p] = place_of(memory->phases[p], *memory);
    s.marks[p] = marks_of(memory->phases[p]);
  }
  if (thread < kPhaseWords) keep_word(0, word_of(0));
  if (thread == 0) s.unit = unit_of<Shape::kWarps>(args);
  if (Shape::kLooksAhead && thread == 0) s.ahead = {args.looks_ahead ? 0 : args.count, 0};
  if (*args.refused != 0) return;
  const uint32_t run = kOne ? args.barrier[1] : 0;
  if (Shape::kFetched && thread < Shape::kWarps) start_gates(s.gates[thread]);
  __syncthreads();
  const auto own_ring = [&](int warp) {
    return Ring<Shape, kStages<Shape>>(s.places, s.marks, args.count, s.unit, s.experts, s.rings[warp]);
  };
  if (Shape::kFetched && thread >= Shape::kThreads) {
    const int warp = thread / 32 - Shape::kWarps;
    return own_ring(warp).serve(s.gates[warp]);
  }
  ShapeRing<Shape> ring = [&] {
    const int warp = thread / 32;
    if constexpr (Shape::kFetched) {
      return FetchedRing<Shape, kStages<Shape>>(s.gates[warp], s.rings[warp]);
    } else {
      return own_ring(warp);
    }
  }();
  // Several rows have no registers to keep it in.
  const Rotation rotation = kOne ? load_rotation(args, s.unit) : Rotation{};
  const int rows = kOne ? 1 : args.rows;
  int meetings = 0;
  for (int p = 0; p < args.count; ++p) {
    const Phase& phase = s.phases[p % 2];
    const bool fetches = thread < kPhaseWords && p + 1 < args.count;
    uint32_t next = 0;
    if (fetches) next = word_of(p + 1);
    const auto ready = [&] {
      if (phase.meets) wait_for_all<Shape>(args.barrier, meetings);
    };
    const Handover<Shape> handover{args, phase, run, p};
    compute_phase(args, phase, handover, rows, s, ring, rotation, ready);
    if (fetches) keep_word(p + 1, next);
    if (p + 1 == args.count) {
      end_run<Shape>(args.barrier, unsigned(args.meetings));
    } else if (s.marks[p + 1].meets) {
      arrive<Shape>(args.barrier);
      ++meetings;
    } else {
      sync_warps<Shape>();
    }
    // After the hand-over, so that the refill delays no other block.
    if (p + 1 == args.count || !asks_first<Shape>(s.phases[(p + 1) % 2])) ring.give_up_all();
  }
  wait_for_copies<0>();
#endif
}

constexpr size_t kMostShared = 227 << 10;  // of a block, from sm_90 on

template <typename Shape>
void launch_shape(const ProgramArgs& args, cudaStream_t stream) {
  static_assert(kSharedBytes<Shape> <= kMostShared);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;  // all blocks run at once, or they would wait for ever
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(unsigned(multiprocessors()));
  config.blockDim = dim3(Shape::kAllThreads);
  config.dynamicSmemBytes = kSharedBytes<Shape>;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  CUDA_CHECK(cudaLaunchKernelEx(&config, program_kernel<Shape>, args));
}

// More than few inputs, of few warps.
template <WeightFormat Format>
using SomeInputs = KernelShape<Format, 1, kMostWarps / 2, false, kSomeInputs>;

template <WeightFormat Format>
void launch_format(const ProgramArgs& args, cudaStream_t stream) {
  if (args.experts) return launch_shape<KernelShape<Format, 1, kMostWarps / 2, true>>(args, stream);
  if (args.rows > 1) return launch_shape<KernelShape<Format, kMostRows, kMostWarps>>(args, stream);
  if (most_inputs(args) <= kFewInputs) return launch_shape<KernelShape<Format, 1, kMostWarps / 2>>(args, stream);
  if constexpr (Format == WeightFormat::LinearW4) {
    if (most_inputs(args) <= kSomeInputs) return launch_shape<SomeInputs<Format>>(args, stream);
  }
  launch_shape<KernelShape<Format, 1, kMostWarps>>(args, stream);
}

template <typename Shape>
void prepare_shape() {
  CUDA_CHECK(cudaFuncSetAttribute(program_kernel<Shape>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  int(kSharedBytes<Shape>)));
}
template <WeightFormat Format>
void prepare_format() {
  prepare_shape<KernelShape<Format, 1, kMostWarps / 2>>();
  if constexpr (Format == WeightFormat::LinearW4) prepare_shape<SomeInputs<Format>>();
  prepare_shape<KernelShape<Format, 1, kMostWarps / 2, true>>();
  prepare_shape<KernelShape<Format, 1, kMostWarps>>();
  prepare_shape<KernelShape<Format, kMostRows, kMostWarps>>();
}

}  // namespace

// quantize_rows() takes a group a warp.
bool runs_here() { return most_shared() >= kMostShared && multiprocessors() * kMostWarps * 64 >= kMostInputs; }

void launch(WeightFormat format, const ProgramArgs& args, cudaStream_t stream) {
  if (format == WeightFormat::LinearW4) launch_format<WeightFormat::LinearW4>(args, stream);
  if (format == WeightFormat::LinearW8) launch_format<WeightFormat::LinearW8>(args, stream);
  if (format == WeightFormat::LinearF16) launch_format<WeightFormat::LinearF16>(args, stream);
  break_overlap();
}

void prepare() {
  if (!runs_here()) return;
  prepare_format<WeightFormat::LinearW4>();
  prepare_format<WeightFormat::LinearW8>();
  prepare_format<WeightFormat::LinearF16>();
}

}  // namespace tcim_lite::cuda::decode
