#include <algorithm>

#include "graph/ops/dense.h"
#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

// Behind the weight, each optional: current, an integer, and the bias, a weight.
constexpr size_t kOldColumns = 1, kWeight = 2, kFirstOptional = 3;

void check_causal_conv(const OpCheck& op) {
  op.arity(kFirstOptional, kFirstOptional + 2, std::max<size_t>(op.op().outputs.size(), 2));
  op.attributes({"activation"});
  if (op.has_attribute("activation")) op.text_in("activation", {"silu"});
  const Value &x = op.input(0), &state = op.input(kOldColumns), &weight = op.input(kWeight);
  const DType dtype = op.tensor(x);
  op.rank(x, 3);
  op.rank(weight, 2);
  const int64_t channels = x.shape[2], taps = weight.shape[0];
  op.constant(weight, DType::Float32, {taps, channels});
  op.rank(state, 3);
  op.not_a_weight(state);
  op.expect(state, dtype, {x.shape[0], channels, state.shape[2]});
  if (state.shape[2] < taps - 1)
    op.refuse("state '", state.name, "' is ", describe(state), ", expected at least ", taps - 1, " columns for the ",
              taps, " taps of '", weight.name, "'");
  for (size_t i = kFirstOptional; i < op.num_inputs(); ++i) {
    const bool is_bias = i > kFirstOptional || op.input(i).kind == ValueKind::Weight;
    if (is_bias) {
      op.constant(op.input(i), DType::Float32, {channels});
    } else {
      op.length(op.input(i));
    }
  }
  op.expect(op.output(0), dtype, x.shape);
  op.states_after(state, x.shape[1]);
}

void plan_causal_conv(PlanBuilder& plan, const Op& op) {
  CausalConvSpec step;
  step.elem = plan.values.elem(op.inputs[0]);
  step.x = plan.values.rows(op.inputs[0]);
  step.taps = plan.value(op.inputs[kWeight]).shape[0];
  step.columns = plan.value(op.inputs[kOldColumns]).shape[2];
  step.weight_id = op.inputs[kWeight];
  step.silu = op.find("activation") != nullptr;
  for (size_t i = kFirstOptional; i < op.inputs.size(); ++i) {
    const bool is_bias = plan.value(op.inputs[i]).kind == ValueKind::Weight;
    (is_bias ? step.bias_id : step.current) = op.inputs[i];
  }
  if (step.current != kNoValue) plan.add_length_rule({kNoValue, step.current}, step.x.slot_rows, 0);
  plan.values.reads(op.inputs[0], plan.next_step());
  step.state = read_dense(plan, op, kOldColumns);
  step.y = plan.result(op.outputs[0], op.inputs[0]);
  for (size_t i = 1; i < op.outputs.size(); ++i) step.new_states.push_back(write_dense(plan, op, i));
  plan.append(std::move(step));
}

}  // namespace

extern const OpDefinition CausalConv = {
    "x [B, T, C] T, state [B, C, S] T, weight [taps, C] float32, current int32 [1] (optional), weight [C] float32 "
    "(optional, a bias) {activation: \"silu\", optional} -> y like x, new state like state, or T such states; S at "
    "least taps - 1",
    "a convolution along T of each channel by itself: y[t] is about the `taps` columns of [state; x] that end with "
    "x[t]. The new state is the S columns of [state; x] from `current` on, from T on without it. Of T states the one "
    "behind token t is that of `current` = t + 1, beyond `current` that of `current`",
    Cut::Columns,
    check_causal_conv,
    plan_causal_conv,
    nullptr,
    kNoOperand,
    nullptr,
    false,
    kNoOperand,
    kOldColumns};

}  // namespace tcim_lite::ops
