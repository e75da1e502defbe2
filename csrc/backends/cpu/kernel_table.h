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

#include "backends/cpu/conv_args.h"
#include "graph/plan/elem.h"
#include "graph/weight_format.h"

namespace tcim_lite::cpu {

constexpr int64_t kAttentionBlock = 256;  // cache rows per attention block, absolute
constexpr int64_t kFewRows = 8;           // up to here a Linear is bound by its weight stream

// y = x / sqrt(mean(x^2) + epsilon) * weight, one rounding to T. y may be x.
struct RmsNormArgs {
  const void* x;        // [rows, cols] T
  void* y;              // [rows, cols] T
  const float* weight;  // [cols]
  int64_t rows, cols, x_stride, y_stride;
  float epsilon;
};

// Activations of a quantised Linear: codes in [-127, 127] with one power of two per 64. In the hidden-exponent format
// (docs/numerics.md section 3) codes go down to -128, and those of elements 16, 18, .. 30 of every 32 are even.
struct QuantizeArgs {
  const void* x;  // [rows, 64 * groups] T
  int8_t* codes;  // [rows, 64 * groups], dense, 64-byte aligned
  float* scales;  // [rows, groups] 2^e
  int32_t* sums;  // [rows, groups] sum of the codes
  int64_t rows, groups, x_stride;
};

// acc = sum over groups of fma(float(dot), weight_scale * scale, acc), from 0.
struct LinearQuantArgs {
  const uint8_t* weights;               // first block; 64-byte aligned (graph/weight_format.h)
  int64_t block_stride;                 // bytes between blocks
  int64_t blocks;                       // of 16 outputs
  int64_t groups;                       // K / 64
  const int8_t* codes;                  // [rows, 64 * groups] as QuantizeArgs
  const float* scales;                  // [rows, groups]
  const int32_t* sums;                  // [rows, groups]
  int64_t rows;                         // >= 1
  float* acc;                           // [rows, acc_stride]; 16 * blocks of each row are written; 64-byte aligned
  int64_t acc_stride;                   // multiple of 16
  const std::byte* arranged = nullptr;  // [rows, ArrangedKernels::row_bytes(groups)]: for ArrangedKernels::multiply
  std::byte* scratch = nullptr;         // [ArrangedKernels::scratch_bytes], 64-byte aligned: for the same
};

// Makes a form of rows of activations that a set multiplies faster.
struct ArrangeArgs {
  const int8_t* codes;  // [rows, 64 * groups] as QuantizeArgs
  const float* scales;  // [rows, groups]
  std::byte* arranged;  // [rows, ArrangedKernels::row_bytes(groups)], 64-byte aligned
  int64_t rows, groups;
};

// acc = fma(w_k, x_k, acc), k ascending from 0. Weights LinearF16/F32; with LinearW4/W8 the dequantised value (the
// profile TCIM_LITE_NUMERICS=float).
struct LinearFloatArgs {
  const uint8_t* weights;
  int64_t block_stride, blocks;
  int64_t cols;    // K
  const float* x;  // [rows, cols]
  int64_t x_stride, rows;
  float* acc;  // as LinearQuantArgs
  int64_t acc_stride;
};

// y = round(acc + bias); with a residual y = round(residual + round(acc + bias)). y may be residual.
struct StoreArgs {
  const float* acc;      // [rows, cols]
  const float* bias;     // [cols] or null
  const void* residual;  // [rows, cols] T or null
  void* y;               // [rows, cols] T
  int64_t rows, cols, acc_stride, residual_stride, y_stride;
};

// y[16 b + i] = round(silu(round(acc[32 b + i] + bias)) * round(acc[32 b + 16 + i] + bias)); silu(g) = g / (1 +
// exp(-g)).
struct SiluMulStoreArgs {
  const float* acc;   // [rows, 2 * cols]
  const float* bias;  // [2 * cols] or null
  void* y;            // [rows, cols] T, cols a multiple of 16
  int64_t rows, cols, acc_stride, y_stride;
};

// y = op(a, b), one rounding to T. y may be a.
struct ElementwiseArgs {
  const void* a;  // [rows, cols] T
  const void* b;  // [rows, cols] T
  void* y;        // [rows, cols] T
  int64_t rows, cols, a_stride, b_stride, y_stride;
  bool a_repeats = false, b_repeats = false;  // the first element of a row stands for all of it
};

// y = condition < 0 or > 0 ? a : b, one row; operands repeat as those of ElementwiseArgs.
struct WhereArgs {
  const void* condition;  // [cols] T
  const void* a;          // [cols] T
  const void* b;          // [cols] T
  void* y;                // [cols] T
  int64_t cols;
  bool condition_repeats, a_repeats, b_repeats;
};

// y = round(op(x)). y may be x.
struct UnaryArgs {
  const void* x;  // [count] T
  void* y;        // [count] T
  int64_t count;
  float alpha, beta;
};

// y[row] = round(op(x[row])).
struct ReduceArgs {
  const void* x;  // [rows, cols] T
  void* y;        // [rows] T
  int64_t rows, cols;
};

// y = round(exp(x - m) / sum of exp(x - m)), m the largest of the row; with `log` round((x - m) - log(that sum)).
// Without `log` y may be x.
struct SoftmaxArgs {
  const void* x;   // [rows, cols] T
  void* y;         // [rows, cols] T
  float* scratch;  // [cols]
  int64_t rows, cols;
  bool log;
};

// y = round((x - mean) * (1 / sqrt(variance + epsilon)) * weight + bias), the last two with one fma.
struct LayerNormArgs {
  const void* x;        // [rows, cols] T
  void* y;              // [rows, cols] T
  const float* weight;  // [cols] or null
  const float* bias;    // [cols] or null
  int64_t rows, cols;
  float epsilon;
};

// y[o, i, n] = round(sum over t of weights[i, t] * x[o, indices[i, t], n]), t ascending from 0 with fma. More than one
// row o, at most kTurnedRows, only where inner is 1.
struct ResampleArgs {
  const void* x;           // [rows, extent, inner] T
  const int32_t* indices;  // [count, taps], each in range
  const float* weights;    // [count, taps]
  void* y;                 // [rows, count, inner] T
  int64_t rows, extent, count, taps, inner;
  float* scratch;  // of several rows: [extent + kTurnedRows, kTurnedRows]
};
constexpr int64_t kTurnedRows = 16;

// y = round(sum over k of weights[k] * x[k]), k ascending from 0 with fma; with a residual y = round(residual + that).
// y may be residual.
struct WeightedSumArgs {
  const void* x;         // [count, cols] T
  const float* weights;  // [count]
  const void* residual;  // [cols] T or null
  void* y;               // [cols] T
  int64_t count, cols;
};

// SiluMulStoreArgs on T, without a bias.
struct SiluMulArgs {
  const void* x;  // [rows, 2 * cols] T, alternating in blocks of 16
  void* y;        // [rows, cols] T, cols a multiple of 16
  int64_t rows, cols, x_stride, y_stride;
};

// y[16 b + i] = round((up + 1) * (gate / (1 + exp(-(alpha * gate))))) with gate at most `limit` and up in [-limit,
// limit].
struct ClampedGluArgs {
  SiluMulArgs rows;
  float alpha, limit;
};

// Rotate-half on one token: y1 = fma(-x2, sin, x1 * cos), y2 = fma(x1, sin, x2 * cos), each product and fma rounded to
// fp32 once, then one rounding to T. x1 is the first half of a head, x2 the second. y may be x.
struct RopeArgs {
  const void* x;                                // [heads, head_dim] T
  void* y;                                      // [heads, head_dim] T
  const float* cos;                             // [head_dim / 2]
  const float* sin;                             // [head_dim / 2]
  int64_t heads, head_dim, x_stride, y_stride;  // strides between heads
};

// y = x * factor in fp32. factor 1 is exact.
struct WidenArgs {
  const void* x;  // [rows, cols] T
  float* y;       // [rows, cols]
  int64_t rows, cols, x_stride, y_stride;
  float factor;
};

// y = round(x); fp16 saturates at 65504.
struct NarrowArgs {
  const float* x;  // [rows, cols]
  void* y;         // [rows, cols] T
  int64_t rows, cols, x_stride, y_stride;
};

// y[j, i] = x[i, j], elements of 2 or 4 bytes.
struct TransposeArgs {
  const void* x;       // [rows, cols]
  void* y;             // [cols, rows]
  int64_t rows, cols;  // of x
  int64_t x_stride, y_stride;
};

// One block of at most 256 keys for several query rows that share a KV head. T is the element of the cache. Row r sees
// keys [begin_of(r), keys[r]), at least one. Writes the block's own m, l and o (docs/numerics.md section 7). Returns
// false when a score or an element of o of row 0 is NaN or infinite: no row sees a cached key that row 0 does not see,
// so a NaN or an infinity in the cache shows there.
struct AttentionBlockArgs {
  const float* q;       // [rows, head_dim], scaled
  const void* k;        // [256 or fewer, head_dim] T, dense
  const void* v;        // [256 or fewer, head_dim] T, dense
  const int32_t* keys;  // [rows], ascending or equal
  float* m;             // [rows]
  float* l;             // [rows]
  float* o;             // [rows, head_dim]
  float* scores;        // [rows, 256], overwritten: of no use to the caller, too large for a stack
  int64_t rows, head_dim;
  const int32_t* begins = nullptr;  // [rows], ascending or equal; null: 0
  const float* mask = nullptr;      // [256 or fewer], added to the scores of every row; null: nothing
  const void* next = nullptr;       // keys that are read after this block, only fetched; null: those behind it
};
static inline int64_t begin_of(const AttentionBlockArgs& args, int64_t row) {
  return args.begins == nullptr ? 0 : args.begins[row];
}

// Merges a later block (m, l, o) into the running (m, l, o) of an earlier one:
//   m' = max(M, m); a = exp(M - m'); b = exp(m - m'); L = fma(L, a, l * b); O = fma(O, a, o * b).
struct AttentionMergeArgs {
  float* running_m;
  float* running_l;
  float* running_o;  // [rows, head_dim]
  const float* m;
  const float* l;
  const float* o;  // [rows, head_dim]
  int64_t rows, head_dim;
};

// y = round(o / l).
struct AttentionFinishArgs {
  const float* l;  // [rows]
  const float* o;  // [rows, head_dim]
  void* y;         // [rows, head_dim] T
  int64_t rows, head_dim, y_stride;
};

// True when every element is neither NaN nor infinite.
struct FiniteArgs {
  const void* x;  // [rows, cols] T
  int64_t rows, cols, x_stride;
};

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
  void (*clamped_glu[2])(const ClampedGluArgs&);
  void (*weighted_sum[2])(const WeightedSumArgs&);
  void (*rope[2])(const RopeArgs&);
  void (*widen[2])(const WidenArgs&);
  void (*narrow[2])(const NarrowArgs&);
  void (*transpose[2])(const TransposeArgs&);  // of 2 bytes, of 4
  bool (*attention_block[2])(const AttentionBlockArgs&);
  void (*attention_merge)(const AttentionMergeArgs&);
  void (*attention_finish[2])(const AttentionFinishArgs&);
  void (*where[kElems])(const WhereArgs&);
  void (*unary[kUnaryOps][2])(const UnaryArgs&);
  void (*reduce[kReduceOps][kElems])(const ReduceArgs&);
  void (*softmax[2])(const SoftmaxArgs&);
  void (*layer_norm[2])(const LayerNormArgs&);
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
