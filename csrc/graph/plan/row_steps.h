// Steps over rows: what language models are made of (steps.h).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/plan/elem.h"

namespace tcim_lite {

// An activation seen as a matrix: the leading axes are rows, the rest columns. A view of a wider value has its stride.
struct Rows {
  uint32_t value = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;     // elements between rows
  int64_t slot_rows = 0;  // rows per batch slot, T
  bool limited = false;   // rows at or beyond the live count need not be computed
};

// The lengths of a slot, int32 scalar inputs.
struct SlotLengths {
  uint32_t valid = 0;    // value id: tokens in the cache before this run
  uint32_t current = 0;  // value id: real tokens in this run

  bool operator==(const SlotLengths&) const = default;
};

// y = x W^T + bias, with what is fused around it: RMSNorm and quantisation before, residual or SiLU-mul after.
struct LinearSpec {
  enum class Epilogue { Store, AddResidual, SiluMul };

  Elem elem = kF16;             // of x, residual and y
  Rows x;                       // [rows, inputs]
  uint32_t norm_id = kNoValue;  // weight [inputs]: RMSNorm of x comes first
  float norm_epsilon = 0;
  WeightFormat format = WeightFormat::Dense;
  uint32_t weights_id = kNoValue;  // packed [outputs, inputs]
  int64_t outputs = 0, inputs = 0;
  uint32_t bias_id = kNoValue;  // [outputs] float32
  Epilogue epilogue = Epilogue::Store;
  Rows residual;                 // [rows, outputs], for AddResidual
  Rows y;                        // [rows, outputs], for SiluMul [rows, outputs / 2]
  bool float_math = false;       // TCIM_LITE_NUMERICS=float: quantised weights are dequantised, activations stay float
  bool hidden_exponent = false;  // activations take the vendor's block format (docs/numerics.md section 3), fp16 only

  bool quantized() const { return is_quantized(format) && !float_math; }
};

// What MoERoute chooses for each row: the ids of `chosen` experts and what their outputs count.
struct MoERouteSpec {
  // Far above any real model; a row's choice is in registers.
  static constexpr int64_t kMostChosen = 64, kMostExperts = 4096;

  Elem elem = kF16;  // of logits and weights
  Rows logits;       // [rows, experts]
  Rows ids;          // [rows, chosen] int32
  Rows weights;      // [rows, chosen]
  int64_t experts = 0, chosen = 0;
  bool softmax_first = true;            // over all experts; otherwise over the chosen ones
  bool normalise = false;               // divide by the sum of the chosen ones
  bool sigmoid = false;                 // of each logit instead of a softmax
  bool softmax_scores = false;          // the softmax over all experts is what they are chosen by
  float threshold = 0;                  // above 0, sparse_mixer: who counts in the softmax of each of the chosen
  uint32_t bias_id = kNoValue;          // [experts] float32, added to the scores for the choice alone
  int64_t groups = 1, kept_groups = 1;  // experts of the best groups alone are chosen

  bool scored() const { return sigmoid || softmax_scores; }
};

// As `linear`, with the matrix and the bias of the expert that a row chose: packed [experts * outputs, inputs] and
// [experts, outputs].
struct MoELinearSpec {
  LinearSpec linear;      // x [rows, inputs], or one of its own for each expert: [rows, chosen * inputs]; y likewise
  Rows ids;               // [rows, chosen] int32, each below `experts`
  bool in_order = false;  // instead of ids: part i of a row takes matrix i, HeadLinear
  int64_t experts = 0, chosen = 0;

  bool x_per_expert() const { return linear.x.cols != linear.inputs; }
};

// y = sum over the chosen experts of weight * x, with a residual y = residual + that.
struct MoECombineSpec {
  Elem elem = kF16;
  Rows x;        // [rows, chosen * cols]
  Rows weights;  // [rows, chosen]
  Rows y;        // [rows, cols]
  bool adds = false;
  Rows residual;  // [rows, cols]
  int64_t chosen = 0;
};

// What happens to q, k or v between the merged projection and attention, head by head: RMSNorm, RoPE, then a store or
// the write into the caches.
struct HeadChainSpec {
  Rows x;  // [rows, heads * head_dim]
  int64_t heads = 0, head_dim = 0;
  uint32_t norm_id = kNoValue;  // [head_dim]
  float norm_epsilon = 0;

  uint32_t cos_id = kNoValue;  // [table_rows, rotary_dim / 2] of table_elem; kNoValue without RoPE
  uint32_t sin_id = kNoValue;
  Elem table_elem = kF16;
  int64_t table_rows = 0;
  int64_t rotary_dim = 0;            // elements of a head that turn, the first ones
  bool tables_computed = false;      // by earlier steps, a row of cos and of sin for each row of x; otherwise weights
  std::vector<uint32_t> rope_valid;  // per slot: int32, the first token's position, or with rope_given every token's
  bool rope_given = false;

  // Destination: rows of y, or, when `caches` is not empty, cache rows [valid, valid + current) of each slot.
  Rows y;
  std::vector<uint32_t> caches;  // per slot, [1, heads, context, head_dim] of cache_elem
  std::vector<SlotLengths> lengths;
  Elem cache_elem = kF16;
  int64_t context = 0;
};

// Chains over the same rows, in any order.
struct HeadsSpec {
  Elem elem = kF16;
  std::vector<HeadChainSpec> chains;
};

constexpr int64_t kMaxHeadsPerKv = 256;

struct AttentionSpec {
  Elem elem = kF16;            // of q and y
  Elem cache_elem = kF16;      // of k and v
  Rows q;                      // [slots * tokens, q_heads * head_dim]
  Rows y;                      // same shape
  std::vector<uint32_t> k, v;  // per slot, [1, kv_heads, context, head_dim]
  std::vector<SlotLengths> lengths;
  std::vector<uint32_t> masks;  // per slot, [tokens, mask_cols] of elem, added to the scores
  bool by_lengths = true;       // the lengths and the window hide, with masks or without
  int64_t mask_cols = 0;        // cache rows that a mask is about, the first of them first_masked()
  int64_t mask_step = 0;        // from one token's row of a mask to the next: mask_cols, or 0 where one is for all
  int64_t q_heads = 0, kv_heads = 0, head_dim = 0, context = 0;
  uint32_t sinks_id = kNoValue;  // [q_heads] float32: one more score of each head, without a value
  int64_t window = 0;            // keys that a token sees, the last of them its own; no limit where it is the context
  float scale = 0;
  float softcap = 0;  // c: a score s is c * tanh(s), where `scale` has divided it by c; 0: scores stay

  int64_t heads_per_kv() const { return q_heads / kv_heads; }
  // The cache row of a mask's first column.
  int64_t first_masked(int64_t valid) const {
    return window < context && valid > window - 1 ? valid - (window - 1) : 0;
  }
};

// Heads and the attention that reads them as one step: a layer's q goes from its path into attention and nowhere else,
// k and v into the caches that it reads. Paths of k and q turn by the same tables, at the positions that attention
// begins at or by rows of their own; v's does nothing but write.
struct HeadsAttentionSpec {
  HeadsSpec heads;  // three chains
  AttentionSpec attention;
  size_t q = 0, k = 0, v = 0;  // indices of heads.chains

  const HeadChainSpec& of_q() const { return heads.chains[q]; }
  const HeadChainSpec& of_k() const { return heads.chains[k]; }
  const HeadChainSpec& of_v() const { return heads.chains[v]; }
};

// y dense; with groups > 1 each row is `groups` vectors of cols / groups.
struct RmsNormSpec {
  Elem elem = kF16;
  Rows x, y;
  int64_t groups = 1;
  uint32_t weight_id = kNoValue;  // [cols / groups]
  float epsilon = 0;
};

// y = op(a, b), all of one shape.
struct ElementwiseSpec {
  ElementwiseOp op = kAdd;
  Elem elem = kF16;
  Rows a, b, y;
};

struct SiluMulSpec {
  Elem elem = kF16;
  Rows x, y;
  float alpha = 0, limit = 0;  // of the clamped form; no limit: silu(gate) * up
  bool gelu = false;           // GeluTanh in place of silu

  bool clamped() const { return limit > 0; }
};

// y[0] = x[current - 1].
struct GatherRowSpec {
  Elem elem = kF16;
  Rows x, y;
  uint32_t current = 0;
};

// y = x between element types, for the edges of the graph: graph inputs into fp32 intermediates and back
// (TCIM_LITE_NUMERICS=float), graph inputs of float32 among float16 tensors, and graph outputs that are views.
struct CopySpec {
  Elem from = kF16, to = kF16;
  Rows x, y;
};

}  // namespace tcim_lite
