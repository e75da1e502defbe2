// What the kernels compute, and the functions that launch them. Launches go to the stream that is being captured or
// run; nothing here allocates or waits. Numbers: docs/numerics.md and docs/cuda.md.
//
// "T" is the element of tensors between ops (Elem). Strides are in elements. Lengths are read from device memory when
// the kernel runs, so one captured graph serves every length. Kernels that write what outlives a run (caches, outputs)
// do nothing when *refused is not 0.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "graph/plan/elem.h"
#include "graph/weight_format.h"

namespace tcim_lite::cuda {

// Copies inputs to where kernels read them, unless they lie there, and looks for a NaN or infinity in their live rows.
struct StageInput {
  const void* from;
  void* to;
  int64_t row_bytes, rows;
  const int* live;  // null: all rows. In the caller's memory: lengths are staged by the same launch
  int elem;         // Elem to check, or -1
  int port;         // *refused = port + 1
};
constexpr int kMaxStaged = 48;
struct StageArgs {
  StageInput inputs[kMaxStaged];
  int count;
  int* refused;       // on the device
  int* refused_host;  // the same for the host, pinned
};
void launch_stage(const StageArgs& args, cudaStream_t stream);

struct RowArgs {
  const void* x;
  void* y;
  int rows, cols;
  int64_t x_stride, y_stride;
  const int* live;
  const int* refused;  // null: y does not outlive the run
};

struct NormArgs {
  RowArgs row;  // cols of one vector; `groups` vectors in a row, dense
  const float* weight;
  float epsilon;
  int groups;
};
void launch_norm(Elem elem, const NormArgs& args, cudaStream_t stream);

struct ElementwiseArgs {
  RowArgs row;  // y = op(x, b)
  const void* b;
  int64_t b_stride;
};
void launch_elementwise(ElementwiseOp op, Elem elem, const ElementwiseArgs& args, cudaStream_t stream);
// y [rows, cols] from x [rows, 2 cols], gate and up alternating in blocks of 16.
void launch_silu_mul(Elem elem, const RowArgs& args, cudaStream_t stream);
void launch_gelu_mul(Elem elem, const RowArgs& args, cudaStream_t stream);
// (up + 1) * gate * sigmoid(alpha * gate), gate at most `limit` and up in [-limit, limit].
void launch_clamped_glu(Elem elem, const RowArgs& args, float alpha, float limit, cudaStream_t stream);
void launch_copy(Elem from, Elem to, const RowArgs& args, cudaStream_t stream);
// y[0] = x[*current - 1].
void launch_gather_row(Elem elem, const RowArgs& args, const int* current, cudaStream_t stream);
// Zeroes rows at and beyond *live.
void launch_zero_rows(void* y, int rows, int64_t row_bytes, const int* live, const int* refused, cudaStream_t stream);

// One chain of HeadsSpec.
constexpr int kMaxSlots = 64;
struct HeadsArgs {
  const void* x;
  int64_t x_stride;
  int rows, slot_rows, heads, head_dim;
  const float* norm_weight;  // null: no norm
  float epsilon;
  const void* cos;  // null: no RoPE
  const void* sin;
  int table_elem, table_rows;
  int rotary_dim;       // elements of a head that turn, the first ones
  int tables_computed;  // a row of cos and sin for each row of x
  int rope_given;       // rope_valid are the positions of all tokens, not of the first
  void* y;              // null: to the caches
  int64_t y_stride;
  int cache_elem, context;
  const int* live;
  const int* refused;
  void* caches[kMaxSlots];
  const int* rope_valid[kMaxSlots];
  const int* valid[kMaxSlots];
  const int* current[kMaxSlots];
};
void launch_heads(Elem elem, const HeadsArgs* chains, int count, cudaStream_t stream);

struct AttentionArgs {
  const void* q;  // [slots * slot_rows, heads * head_dim]
  void* y;
  int64_t q_stride, y_stride;
  int slots, slot_rows, q_heads, kv_heads, head_dim, context;
  int window;          // keys that a token sees, at least 1
  int mask_cols;       // cache rows that a mask is about; 0: there are no masks
  int mask_step;       // from one token's row of a mask to the next
  bool by_lengths;     // the lengths and the window hide, with masks or without
  const float* sinks;  // [q_heads], one more score of each head; null: none
  float scale;
  float softcap;  // above 0, a score s is softcap * tanh(s), before the mask
  const int* live;
  const int* refused;
  int* odd;       // the host's: becomes 1 when a result is NaN or infinite
  void* operand;  // of the Linear that alone reads y, which is not stored then; null: y is. For many tokens only
  int operand_rows;
  const void* k[kMaxSlots];
  const void* v[kMaxSlots];
  const int* valid[kMaxSlots];
  const void* masks[kMaxSlots];  // rows of mask_cols, from row max(valid - (window - 1), 0) on if window < context
};
// Any shape, with masks or without: one block per row and head.
void launch_attention_any(Elem elem, Elem cache_elem, const AttentionArgs& args, cudaStream_t stream);

// fp16, head_dim 64 or 128, one token a slot: each KV head's rows split over blocks, merged by the last of them. With
// `heads`, the norm, RoPE and cache write of q, k and v happen in the same launch.
struct DecodeAttentionArgs {
  AttentionArgs a;
  int splits;
  float* partial;   // [slots, kv_heads, splits, decode_partial_floats]
  int* arrived;     // [slots, kv_heads], 0 between runs
  bool fused;       // q is not ready: x holds the projection
  const void* x_q;  // rows of the projection, of stride x_stride
  const void* x_k;
  const void* x_v;
  int64_t x_stride;
  const float* q_norm;  // null: none
  const float* k_norm;
  float q_epsilon, k_epsilon;
  const void* cos;  // null: none
  const void* sin;
  int table_rows;
  const int* current[kMaxSlots];
};
bool decode_attention_supports(const AttentionArgs& args);
// Of `partial`, for each split of a slot and KV head: outputs, then (m, l), of its query heads; whole 16 bytes.
constexpr int64_t decode_partial_floats(int64_t heads, int64_t head_dim) {
  return (heads * (head_dim + 2) + 3) / 4 * 4;
}
void launch_decode_attention(const DecodeAttentionArgs& args, cudaStream_t stream);

// fp16, head_dim 64 or 128, any number of tokens: tensor cores, 64 query rows (token-major, the heads of a KV head
// together) a block. q and y in pairs of elements.
bool prefill_attention_supports(const AttentionArgs& args);
void launch_prefill_attention(AttentionArgs args, cudaStream_t stream);

// y = x W^T with bias and an epilogue.
struct LinearArgs {
  const void* x;  // [rows, inputs] T
  int64_t x_stride;
  int rows, inputs, outputs;
  const float* norm_weight;  // null: none
  float epsilon;
  const void* weights;  // as repacked
  const float* bias;    // null: none
  int epilogue;         // LinearSpec::Epilogue
  const void* residual;
  int64_t residual_stride;
  void* y;
  int64_t y_stride;
  const int* live;
  const int* refused;
  const void* prepared;  // x as launch_linear_wgmma() multiplies it, left by the step before; null: it was not
  void* operand;         // the same of the Linear that alone reads y, which need not be stored then; null: y is
};

// Layouts on the device (repack): quantised weights per 16 outputs and 64 inputs one item of 512 or 1024 bytes of
// signed codes in the order of the tensor core's operand, then 16 scales; float weights row by row, outputs padded
// to 16.
constexpr bool has_items(WeightFormat format) {
  return format == WeightFormat::LinearW4 || format == WeightFormat::LinearW8;
}
int64_t placed_bytes(WeightFormat format, int64_t outputs, int64_t inputs);
void launch_repack(WeightFormat format, const void* packed, void* placed, int64_t outputs, int64_t inputs,
                   cudaStream_t stream);

// Any format and rows. With quantised weights x stays float (TCIM_LITE_NUMERICS=float) unless `quantize_x`, for formats
// without items. The caller applies the norm.
void launch_linear_any(Elem elem, WeightFormat format, const LinearArgs& args, bool quantize_x, cudaStream_t stream);

// fp16 tensors, up to 8 rows, inputs a multiple of 64: weights stream once through tensor cores.
constexpr int kStreamRows = 8;
bool linear_stream_supports(WeightFormat format, const LinearArgs& args);
void launch_linear_stream(WeightFormat format, const LinearArgs& args, cudaStream_t stream);

// A Linear whose matrix each row chooses: y of a row is that of each of its experts side by side.
struct ExpertsArgs {
  LinearArgs linear;     // rows are tokens; the first expert's weights and bias
  const int* ids;        // [rows, chosen], each below `experts`; null: part i of a row takes matrix i
  int64_t expert_bytes;  // from one expert's weights to the next, as repacked
  int experts, chosen;
  bool own_rows;  // a row of x has one part for each expert
};
// Any format and rows; an expert's weights are read once for eight rows. As launch_linear_any.
void launch_experts_any(Elem elem, WeightFormat format, const ExpertsArgs& args, bool quantize_x, cudaStream_t stream);
// Where linear_stream_supports() one row; up to kStreamRows tokens.
void launch_experts_stream(WeightFormat format, const ExpertsArgs& args, cudaStream_t stream);
// Any rows of formats with items: the pairs of an expert meet its weights on the int8 tensor cores.
int64_t experts_scratch_bytes(int64_t rows, int64_t inputs, int64_t experts, int64_t chosen, bool own_rows);
void launch_experts_gemm(Elem elem, WeightFormat format, const ExpertsArgs& args, void* scratch, cudaStream_t stream);

// The experts of each row, and their shares of type T.
struct RouteArgs {
  const void* logits;  // [rows, experts] T
  int* ids;            // [rows, chosen]
  void* shares;        // [rows, chosen] T
  int64_t stride;      // of logits
  int rows, experts, chosen;
  bool softmax_first, normalise;
  bool sigmoid;         // instead of a softmax
  bool softmax_scores;  // experts are chosen by the softmax over all of them
  float threshold;      // above 0: who counts in the softmax of each of the chosen, the order sparse_mixer
  const float* bias;    // [experts], added to the scores for the choice; null: none
  int groups, kept_groups;
  const int* live;
  const int* refused;
};
void launch_route(Elem elem, const RouteArgs& args, cudaStream_t stream);

// y = sum over `chosen` of shares * x, with a residual y = residual + that.
struct CombineArgs {
  RowArgs row;         // x [rows, chosen * cols], y [rows, cols]
  const void* shares;  // [rows, chosen] T
  const void* residual;
  int64_t residual_stride;
  int chosen;
};
void launch_combine(Elem elem, const CombineArgs& args, cudaStream_t stream);

// Any rows of quantised weights: x is quantised into `scratch`, then tiles of outputs and rows run on the tensor cores:
// with `wgmma`, Hopper's on fp16 weights, where linear_wgmma_supports(); the int8 ones on exact codes otherwise.
// Whether args.operand was left, in place of y.
int64_t gemm_scratch_bytes(int64_t rows, int64_t inputs);
bool launch_linear_gemm(Elem elem, WeightFormat format, const LinearArgs& args, bool wgmma, void* scratch,
                        cudaStream_t stream);

bool linear_wgmma_supports(Elem elem);
// Writes 1 to *outside if a code times its scale may leave the range in which launch_linear_wgmma() is right. `weights`
// as repacked.
void launch_scales_check(WeightFormat format, const void* weights, int64_t outputs, int64_t inputs, int* outside,
                         cudaStream_t stream);
bool launch_linear_wgmma(WeightFormat format, const LinearArgs& args, void* scratch, cudaStream_t stream);
int64_t wgmma_operand_bytes(int64_t rows, int64_t inputs);

// What a library's product leaves to do: y = epilogue(products), which are [rows, outputs] of `elem`, dense; fp16 ones
// may be infinite where y saturates.
void launch_linear_epilogue(const LinearArgs& args, Elem elem, const void* products, cudaStream_t stream);

// Sets what a block of each kernel may use on the current GPU; once per GPU before its first launch.
// With `wgmma`, Hopper's matrix instructions multiply many rows by quantised weights.
void prepare_kernels(bool wgmma);
int multiprocessors();  // of the current GPU
// The next launch of this thread waits for all of what came before, as it must after anything but a kernel.
void break_overlap();

}  // namespace tcim_lite::cuda
