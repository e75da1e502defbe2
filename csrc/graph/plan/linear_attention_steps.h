// Steps of linear attention: what keeps a state of fixed size instead of a cache (steps.h).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/plan/row_steps.h"

namespace tcim_lite {

// Each channel of x by itself: y[t] = sum over `taps` of weights * the columns of [state; x] that end with x[t].
struct CausalConvSpec {
  Elem elem = kF16;
  Rows x, y;                                   // [slots * tokens, channels]
  uint32_t state = 0;                          // [slots, channels, columns]: the columns before x
  std::vector<uint32_t> new_states;            // the same: those at the end of x, or the last ones after each token
  uint32_t weight_id = 0, bias_id = kNoValue;  // float32 [taps, channels], [channels]
  uint32_t current = kNoValue;                 // real tokens of the slot; kNoValue: all
  int64_t taps = 0, columns = 0;
  bool silu = false;

  int64_t slots() const { return x.rows / x.slot_rows; }
};

// A state [heads, keys, values] of each slot that every token reads and updates.
struct DeltaRuleSpec {
  Elem elem = kF16;
  Rows q, k;  // [slots * tokens, q_heads or k_heads * keys]; consecutive heads of the state share one
  Rows v, y;  // [slots * tokens, heads * values]
  uint32_t state = 0;
  std::vector<uint32_t> new_states;  // after the last token, or after each
  bool has_decay = false, has_beta = false;
  Rows decay, beta;  // [slots * tokens, heads], decay also [.., heads * keys]
  // float32 [heads]: then decay and beta are what gates are made of.
  uint32_t rate_id = kNoValue, bias_id = kNoValue;
  uint32_t skip_id = kNoValue;  // float32 [heads]: then v counts times the softplus of decay, and is added to y
  uint32_t mask = kNoValue;     // [slots * tokens]; a token of 0 changes nothing
  int64_t heads = 0, q_heads = 0, k_heads = 0, keys = 0, values = 0;
  float scale = 0;

  int64_t slots() const { return v.rows / v.slot_rows; }
  int64_t decays() const { return decay.cols / heads; }  // of a head: one, or one for each key
};

// y = x * sigmoid(gate), or x * silu(gate).
struct GateMulSpec {
  Elem elem = kF16;
  Rows x, gate, y;
  UnaryOp function = kSigmoid;

  int64_t each() const { return y.cols / gate.cols; }  // elements side by side that a gate is for
};

}  // namespace tcim_lite
