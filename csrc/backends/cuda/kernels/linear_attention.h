// Kernels of linear attention and the functions that launch them; as kernels.h, which holds the rest.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "graph/plan/elem.h"

namespace tcim_lite::cuda {

struct CausalConvArgs {
  const void* x;        // [slots, tokens, channels], rows of x_stride
  const void* state;    // [slots, channels, columns]
  void* new_state;      // the same
  void* y;              // as x
  const float* weight;  // [taps, channels]
  const float* bias;    // [channels] or null
  int slots, tokens, channels, taps, columns;
  int first, count;  // tokens of this launch: y is theirs, the new state that behind the last of them
  int64_t x_stride, y_stride;
  bool silu;
  const int* current;  // null: all tokens are real
  const int* live;
  const int* refused;
};
void launch_causal_conv(Elem elem, const CausalConvArgs& args, cudaStream_t stream);

// Rows of operands as csrc/backends/cpu/linear_attention_args.h has them, of all heads and slots.
struct DeltaRuleArgs {
  const void *q, *k, *v, *decay, *beta, *mask;  // decay, beta, mask: null where they are not
  const void* state;                            // [slots, heads, keys, values]
  void* new_state;                              // the same
  void* y;
  const float *rate, *bias, *skip;  // [heads] or null
  int64_t q_stride, k_stride, v_stride, decay_stride, beta_stride, y_stride;
  int slots, tokens, heads, q_heads, k_heads, keys, values, decays;
  int first, count;  // tokens of this launch
  float scale;
  const int* live;
  const int* refused;
};
bool delta_rule_supports(const DeltaRuleArgs& args);
void launch_delta_rule(Elem elem, const DeltaRuleArgs& args, cudaStream_t stream);

struct GateMulArgs {
  const void *x, *gate;
  void* y;
  int rows, cols;
  int64_t x_stride, gate_stride, y_stride;
  UnaryOp function;  // sigmoid, silu or softplus
  int each;          // elements that a gate is for
  const int* live;
  const int* refused;
};
void launch_gate_mul(Elem elem, const GateMulArgs& args, cudaStream_t stream);

}  // namespace tcim_lite::cuda
