// What kernels of linear attention take (kernel_table.h says what all share).
#pragma once

#include <cstdint>

#include "graph/plan/elem.h"

namespace tcim_lite::cpu {

// y[t, c] = round(f(sum over k of weight[k, c] * column(first + t + k)[c] + bias[c])), k ascending from 0 with fma; f
// is silu or nothing. Columns are the rows of past, then those of x.
struct CausalConvArgs {
  const void* past;     // [columns, channels] T
  const void* x;        // [.., channels] T
  const float* weight;  // [taps, channels]
  const float* bias;    // [channels] or null
  void* y;              // [rows, channels] T
  int64_t first, rows, channels, taps, columns, x_stride, weight_stride, y_stride;
  bool silu;
};

// The delta rule of one head (docs/numerics.md section 7).
struct DeltaRuleArgs {
  const void* q;                         // [tokens, keys] T
  const void* k;                         // [tokens, keys] T
  const void* v;                         // [tokens, values] T
  const void* decay;                     // [tokens, decays] T; null: none
  const void* beta;                      // [tokens] T; null: nothing is subtracted from v
  const void* mask;                      // [tokens] T; null: all are real
  const void* state;                     // [keys, values] T
  void* new_state;                       // [keys, values] T; may be state
  void* y;                               // [tokens, values] T
  float* scratch;                        // [delta_rule_floats(keys, values)]
  int64_t tokens, keys, values, decays;  // decays: of a token, 1 or keys
  int64_t q_stride, k_stride, v_stride, decay_stride, beta_stride, y_stride;
  bool gates;        // decay and beta are what rate and bias make gates of
  bool steps;        // v counts times the softplus of gates, which have no beta
  float rate, bias;  // of gates
  float skip;        // of steps: v times this is added to y
  float scale;
};
constexpr int64_t kDeltaRuleTokens = 16, kDeltaRuleColumns = 64;  // at a time
constexpr int64_t delta_rule_floats(int64_t keys, int64_t values) {
  const int64_t tiles = (values + kDeltaRuleColumns - 1) / kDeltaRuleColumns;
  return keys * (tiles * kDeltaRuleColumns + 4 * kDeltaRuleTokens);
}

// y = round(x * function(gate)): sigmoid, silu or softplus. y may be x.
struct GateMulArgs {
  const void* x;     // [rows, cols] T
  const void* gate;  // [rows, cols / each] T
  void* y;           // [rows, cols] T
  int64_t rows, cols, x_stride, gate_stride, y_stride;
  UnaryOp function;
  int64_t each;
};

}  // namespace tcim_lite::cpu
