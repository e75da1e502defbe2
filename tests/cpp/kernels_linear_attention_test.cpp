// The kernels of linear attention: every instruction set against ref bit for bit, over sizes around vectors, tiles and
// blocks of tokens, with guard pages; and what a chunk gives against the same tokens one by one.
#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/cpu/dispatch.h"
#include "check.h"
#include "guarded_buffer.h"
#include "same_everywhere.h"

using namespace tcim_lite;
using namespace tcim_lite::cpu;

namespace {

template <typename T>
void check_conv(int64_t channels) {
  for (const int64_t taps : {1, 2, 4}) {
    const int64_t columns = taps - 1 + uniform(0, 2), rows = uniform(1, 7), first = columns + 1 - taps;
    const int64_t x_stride = channels + uniform(0, 5), y_stride = channels + uniform(0, 5);
    const int64_t weight_stride = channels + uniform(0, 5);
    const Numbers<T> past(columns * channels), x((rows - 1) * x_stride + channels);
    const Numbers<float> weight((taps - 1) * weight_stride + channels), bias(channels);
    for (const bool silu : {false, true}) {
      same_everywhere<T>("causal conv", (rows - 1) * y_stride + channels, [&](const KernelTable& table, T* y) {
        table.causal_conv[kElem<T>]({past.data(), x.data(), weight.data(), silu ? bias.data() : nullptr, y, first, rows,
                                     channels, taps, columns, x_stride, weight_stride, y_stride, silu});
      });
    }
  }
}

// Numbers of a model's size: a state of large ones overflows fp32, and NaN has no defined bits.
template <typename T>
struct Small : GuardedBuffer<T> {
  Small(int64_t count, float low, float high) : GuardedBuffer<T>(count) {
    for (int64_t i = 0; i < count; ++i) (*this)[i] = to<T>(std::uniform_real_distribution<float>(low, high)(g_random));
  }
};

enum class Rule { Linear, Gated, GatedByKey, Delta, GatedDelta, Gates, Steps };

template <typename T>
void check_delta_rule(Rule rule, int64_t tokens, int64_t keys, int64_t values) {
  const int64_t gap = uniform(0, 3), decays = rule == Rule::GatedByKey ? keys : 1;
  const int64_t kq = keys + gap, kv = values + gap;
  const Small<T> q((tokens - 1) * kq + keys, -1, 1), k((tokens - 1) * kq + keys, -0.5f, 0.5f);
  const Small<T> v((tokens - 1) * kv + values, -1, 1), state(keys * values, -1, 1);
  const Small<T> decay((tokens - 1) * (decays + gap) + decays, -3, 0), beta((tokens - 1) * (1 + gap) + 1, -1, 1);
  GuardedBuffer<T> mask(tokens);
  for (int64_t t = 0; t < tokens; ++t) mask[t] = to<T>(uniform(0, 4) == 0 ? 0.0f : 1.0f);

  DeltaRuleArgs args{};
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  if (rule != Rule::Linear && rule != Rule::Delta) args.decay = decay.data();
  if (rule >= Rule::Delta && rule != Rule::Steps) args.beta = beta.data();
  args.gates = rule >= Rule::Gates;
  args.steps = rule == Rule::Steps;
  if (args.gates) args.mask = mask.data();
  args.state = state.data();
  args.tokens = tokens;
  args.keys = keys;
  args.values = values;
  args.decays = decays;
  args.q_stride = args.k_stride = kq;
  args.v_stride = args.y_stride = kv;
  args.decay_stride = decays + gap;
  args.beta_stride = 1 + gap;
  args.rate = -0.7f;
  args.bias = 0.3f;
  args.skip = 1.3f;
  args.scale = 0.25f;
  const std::string what =
      concat(name_of(kElem<T>), " delta rule ", int(rule), ", ", tokens, " tokens, ", keys, " x ", values);
  const int64_t rows = (tokens - 1) * kv + values;
  // Results and the state behind them.
  same_everywhere<T>(what, rows + keys * values, [&](const KernelTable& table, T* y) {
    const GuardedBuffer<float> scratch(delta_rule_floats(keys, values));
    DeltaRuleArgs run = args;
    run.y = y;
    run.new_state = y + rows;
    run.scratch = scratch.data();
    table.delta_rule[kElem<T>](run);
  });
  if (sizeof(T) == 2) return;
  // One token after another, the state in place.
  for (const KernelTable& table : tables()) {
    const GuardedBuffer<float> scratch(delta_rule_floats(keys, values));
    std::vector<T> whole(rows), single(rows), end(keys * values), moving(state.data(), state.data() + keys * values);
    DeltaRuleArgs run = args;
    run.scratch = scratch.data();
    run.y = whole.data();
    run.new_state = end.data();
    table.delta_rule[kElem<T>](run);
    for (int64_t t = 0; t < tokens; ++t) {
      DeltaRuleArgs one = run;
      one.tokens = 1;
      one.q = q.data() + t * kq;
      one.k = k.data() + t * kq;
      one.v = v.data() + t * kv;
      one.y = single.data() + t * kv;
      if (one.decay != nullptr) one.decay = decay.data() + t * args.decay_stride;
      if (one.beta != nullptr) one.beta = beta.data() + t * args.beta_stride;
      if (one.mask != nullptr) one.mask = mask.data() + t;
      one.state = one.new_state = moving.data();
      table.delta_rule[kElem<T>](one);
    }
    if (whole != single || end != moving)
      report_failure(__FILE__, __LINE__, concat(what, " on ", table.isa, ": one by one differs"));
  }
}

template <typename T>
void check_gate_mul(int64_t each) {
  const int64_t rows = uniform(1, 5), gap = uniform(0, 3), cols = each * uniform(1, 3);
  const Numbers<T> x((rows - 1) * (cols + gap) + cols), gate((rows - 1) * (cols + gap) + cols);
  for (const UnaryOp function : {kSigmoid, kSilu, kSoftplus}) {
    for (const int64_t group : {int64_t{1}, each}) {
      same_everywhere<T>("gate", (rows - 1) * (cols + 1) + cols, [&](const KernelTable& table, T* y) {
        table.gate_mul[kElem<T>](
            {x.data(), gate.data(), y, rows, cols, cols + gap, cols + gap, cols + 1, function, group});
      });
    }
  }
}

template <typename T>
void check_all() {
  for (const int64_t size : {1, 7, 8, 15, 16, 17, 31, 33, 100}) {
    check_conv<T>(size);
    check_gate_mul<T>(size);
  }
  for (int rule = 0; rule <= int(Rule::Steps); ++rule) {
    for (const int64_t tokens : {1, 2, 15, 16, 17, 40}) {
      check_delta_rule<T>(Rule(rule), tokens, 8, 8);
      check_delta_rule<T>(Rule(rule), tokens, uniform(1, 40), uniform(1, 150));
    }
    check_delta_rule<T>(Rule(rule), 18, 128, 128);
  }
}

}  // namespace

int main() {
  check_all<uint16_t>();
  check_all<float>();
  return check_result();
}
