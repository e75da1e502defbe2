// The kernels of the CPU backend: one table of functions per instruction set, filled by the files in kernels/.
//
// Every function computes exactly what docs/numerics.md defines, so all tables agree bit for bit. Kernels do not check
// their arguments: everything is checked when a graph is loaded. Pointers never overlap unless a comment says so. "T"
// is the element of tensors between ops; a table entry indexed [Elem] exists once per element type, one of kElems also
// for int32 where ops have a form for integers. Strides are in elements. Kernel files include this header, the vector
// headers (kernels/vector/simd.h), <cstdint>, <cstddef> and intrinsics, nothing else, and define one external function,
// TCIM_LITE_USE(file): an external inline function compiled with -mavx512f could be the copy that the linker keeps for
// everyone (tests/test_kernel_symbols.py).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/attention_args.h"
#include "backends/cpu/conv_args.h"
#include "backends/cpu/linear_args.h"
#include "backends/cpu/linear_attention_args.h"
#include "backends/cpu/row_args.h"
#include "graph/plan/elem.h"
#include "graph/weight_format.h"

namespace tcim_lite::cpu {

// How kernels of few rows fetch weights of 4 and 8 bits ahead; each is slower on the CPUs of the others.
enum class WeightFetch {
  Usual,     // as Zen 3 and Zen 4 gain from it
  PastPage,  // the hardware's prefetcher stops at the end of a page: further ahead and twice, into the second cache and
             // from there into the first (benchmarks/notes/log/cpu-kernels.md)
  IntoFirst,  // on ymm registers a short way ahead, into the first cache (benchmarks/notes/log/cpu-avx2-neon.md)
};

// What kernels need to know about the CPU besides its instruction set (cpu_info.h).
struct Tuning {
  WeightFetch fetch = WeightFetch::Usual;
};

// Many rows in a form that is made once for all blocks of a Linear.
struct ArrangedKernels {
  void (*arrange)(const ArrangeArgs&);       // null: the set takes codes as they are
  void (*multiply)(const LinearQuantArgs&);  // two rows and more, or any if `from` is 1
  int64_t from;                              // rows from which it is faster, and its form worth making
  int64_t span_groups = 1, span_bytes = 0;   // bytes of so many groups of a row, or fewer at its end
  int64_t scratch_bytes = 0;                 // of a member

  int64_t row_bytes(int64_t groups) const { return (groups + span_groups - 1) / span_groups * span_bytes; }
};

// Linear with the weights of one format. Float formats have `floats` alone.
struct LinearKernels {
  void (*quantised)(const LinearQuantArgs&);
  void (*few)(const LinearQuantArgs&);   // the same for few_from to kFewRows rows
  void (*many)(const LinearQuantArgs&);  // the same for KernelTable::many_from rows and more
  int64_t few_from;
  ArrangedKernels arranged;
  void (*floats)(const LinearFloatArgs&);  // quantised weights are dequantised
};

struct KernelTable {
  const char* isa;  // as in available_isas()
  Tuning tuning;    // set before the first use_<isa>

  void (*rms_norm[2])(const RmsNormArgs&);
  void (*quantize[2])(const QuantizeArgs&);
  void (*quantize_hidden)(const QuantizeArgs&);  // of fp16
  LinearKernels linear[kWeightFormats];          // by WeightFormat
  int64_t many_from, many_rows;                  // rows from which `many` is used; so many at a time are best
  void (*store[2])(const StoreArgs&);
  void (*silu_mul_store[2])(const SiluMulStoreArgs&);
  void (*elementwise[kElementwiseOps][kElems])(const ElementwiseArgs&);
  void (*silu_mul[2])(const SiluMulArgs&);
  void (*gelu_mul[2])(const SiluMulArgs&);  // apply<kGeluTanh>(gate) * up
  void (*clamped_glu[2])(const ClampedGluArgs&);
  void (*weighted_sum[2])(const WeightedSumArgs&);
  void (*rope[2])(const RopeArgs&);
  void (*widen[2])(const WidenArgs&);
  void (*narrow[2])(const NarrowArgs&);
  void (*transpose[2])(const TransposeArgs&);  // of 2 bytes, of 4
  bool (*attention_block[2])(const AttentionBlockArgs&);
  void (*attention_merge)(const AttentionMergeArgs&);
  void (*attention_finish[2])(const AttentionFinishArgs&);
  void (*causal_conv[2])(const CausalConvArgs&);
  void (*delta_rule[2])(const DeltaRuleArgs&);
  void (*gate_mul[2])(const GateMulArgs&);
  void (*where[kElems])(const WhereArgs&);
  void (*unary[kUnaryOps][2])(const UnaryArgs&);
  void (*reduce[kReduceOps][kElems])(const ReduceArgs&);
  void (*softmax[2])(const SoftmaxArgs&);
  void (*layer_norm[2])(const LayerNormArgs&);
  void (*few_rows[2])(const FewRowsArgs&);
  void (*gemm)(const GemmArgs&);
  void (*gemm_store[2])(const GemmStoreArgs&);
  void (*slab[2])(const SlabArgs&);
  void (*half_slab)(const HalfSlabArgs&);
  void (*direct)(const DirectArgs&);
  void (*direct_blocks)(const DirectBlocksArgs&);
  void (*depthwise_block)(const DepthwiseBlockArgs&);
  void (*pool_block)(const PoolBlockArgs&);
  void (*turned_store[2])(const TurnedStoreArgs&);
  void (*depthwise[2])(const DepthwiseArgs&);
  void (*depthwise_planes[2])(const DepthwisePlanesArgs&);
  void (*panel_codes)(const PanelCodesArgs&);
  void (*window_codes)(const WindowCodesArgs&);
  void (*panel_quant)(const PanelQuantArgs&);
  void (*pool[2])(const PoolArgs&);
  void (*pool_planes[2])(const PoolPlanesArgs&);
  void (*resample[2])(const ResampleArgs&);
  bool (*all_finite[2])(const FiniteArgs&);
  void (*exp)(const float* x, float* y, int64_t count);  // the project's exp, for its tests

  int64_t slab_floats;  // of a slab's weights at a time: they share the first cache with pixels
  int64_t narrow_slab;  // outputs of a slab where rows have few pixels
  bool packs_pixels;    // direct() is faster from packed pixels
  bool gathers_codes;   // window_codes() is faster than unfolding and panel_codes()
};

// Each overwrites the entries it has faster versions of; use_ref fills every entry.
void use_ref(KernelTable& table);
void use_avx2(KernelTable& table);
void use_avxvnni(KernelTable& table);
void use_avx512(KernelTable& table);
void use_avx512vnni(KernelTable& table);
void use_amx(KernelTable& table);
void use_neon(KernelTable& table);
void use_neondotprod(KernelTable& table);

// In a kernel file: a number, or an op, as a type, for what must be a constant in a lambda.
namespace {
template <auto N>
struct Number {
  static constexpr auto value = N;
};
}  // namespace

// In a kernel file: enters a kernel for both float types.
template <typename Kernel, size_t elems>
static inline void enter(Kernel (&entry)[elems], Kernel f16, Kernel f32) {
  entry[kF16] = f16;
  entry[kF32] = f32;
}

}  // namespace tcim_lite::cpu

// In a kernel file: the name of the function that enters its kernels into the table, use_<file>_<isa>. CMake defines
// TCIM_LITE_ISA.
#define TCIM_LITE_USE(file) TCIM_LITE_USE_IN(file, TCIM_LITE_ISA)
#define TCIM_LITE_USE_IN(file, isa) TCIM_LITE_USE_PASTE(file, isa)
#define TCIM_LITE_USE_PASTE(file, isa) use_##file##_##isa
