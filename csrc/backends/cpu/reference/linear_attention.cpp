// The definition of linear attention: docs/numerics.md section 7.
#include <cmath>

#include "backends/cpu/reference/functions.h"

namespace tcim_lite::cpu {
namespace {

float gated(float x, float gate, UnaryOp function) {
  if (function == kSoftplus) return x * apply<kSoftplus>(Lane{gate}, 0, 0).v;
  return x * (function == kSilu ? apply<kSilu>(Lane{gate}, 0, 0) : apply<kSigmoid>(Lane{gate}, 0, 0)).v;
}

template <typename Row>
void causal_conv(const CausalConvArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    void* y = Row::at(args.y, row * args.y_stride);
    for (int64_t c = 0; c < args.channels; ++c) {
      float sum = 0;
      for (int64_t tap = 0; tap < args.taps; ++tap) {
        const int64_t column = args.first + row + tap;
        const void* from = column < args.columns ? Row::at(args.past, column * args.channels)
                                                 : Row::at(args.x, (column - args.columns) * args.x_stride);
        sum = std::fmaf(args.weight[tap * args.weight_stride + c], Row::load(from, c), sum);
      }
      if (args.bias != nullptr) sum = sum + args.bias[c];
      Row::store(y, c, args.silu ? apply<kSilu>(Lane{sum}, 0, 0).v : sum);
    }
  }
}

template <typename Row>
void delta_rule(const DeltaRuleArgs& args) {
  const int64_t keys = args.keys, values = args.values;
  float* state = args.scratch;  // [keys, values]
  float* decays = state + keys * values;
  for (int64_t i = 0; i < keys * values; ++i) state[i] = Row::load(args.state, i);
  for (int64_t t = 0; t < args.tokens; ++t) {
    const void* q = Row::at(args.q, t * args.q_stride);
    const void* k = Row::at(args.k, t * args.k_stride);
    const void* v = Row::at(args.v, t * args.v_stride);
    void* y = Row::at(args.y, t * args.y_stride);
    if (args.mask != nullptr && Row::load(args.mask, t) == 0) {
      for (int64_t j = 0; j < values; ++j) Row::store(y, j, 0.0f);
      continue;
    }
    float partial[16] = {}, step = 1;
    for (int64_t i = 0; i < keys; ++i) {
      partial[i % 16] = std::fmaf(Row::load(q, i), Row::load(k, i), partial[i % 16]);
      decays[i] = 1;
      if (args.decay == nullptr) continue;
      float decay = Row::load(Row::at(args.decay, t * args.decay_stride), args.decays == 1 ? 0 : i);
      if (args.gates) decay = args.rate * (step = softplus(Lane{decay + args.bias}).v);
      decays[i] = exp_ref(decay);
    }
    const float product = tree_sum(partial);
    float beta = args.beta == nullptr ? 1 : Row::load(Row::at(args.beta, t * args.beta_stride), 0);
    if (args.gates) beta = args.steps ? step : sigmoid(Lane{beta}).v;
    for (int64_t j = 0; j < values; ++j) {
      float known = 0, sum = 0;
      for (int64_t i = 0; i < keys; ++i) {
        known = std::fmaf(Row::load(k, i) * decays[i], state[i * values + j], known);
        sum = std::fmaf(Row::load(q, i) * decays[i], state[i * values + j], sum);
      }
      float change = Row::load(v, j);
      if (args.beta != nullptr) change = change - known;
      if (args.beta != nullptr || args.steps) change = change * beta;
      const float result = std::fmaf(change, product, sum) * args.scale;
      Row::store(y, j, args.steps ? std::fmaf(Row::load(v, j), args.skip, result) : result);
      for (int64_t i = 0; i < keys; ++i)
        state[i * values + j] = std::fmaf(Row::load(k, i), change, state[i * values + j] * decays[i]);
    }
  }
  for (int64_t i = 0; i < keys * values; ++i) Row::store(args.new_state, i, state[i]);
}

template <typename Row>
void gate_mul(const GateMulArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* x = Row::at(args.x, row * args.x_stride);
    const void* gate = Row::at(args.gate, row * args.gate_stride);
    void* y = Row::at(args.y, row * args.y_stride);
    for (int64_t i = 0; i < args.cols; ++i)
      Row::store(y, i, gated(Row::load(x, i), Row::load(gate, i / args.each), args.function));
  }
}

}  // namespace

void use_linear_attention_ref(KernelTable& table) {
  enter(table.causal_conv, causal_conv<F16Row>, causal_conv<F32Row>);
  enter(table.delta_rule, delta_rule<F16Row>, delta_rule<F32Row>);
  enter(table.gate_mul, gate_mul<F16Row>, gate_mul<F32Row>);
}

}  // namespace tcim_lite::cpu
