#include <algorithm>
#include <cmath>
#include <string>

#include "graph/ops/dense.h"
#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

constexpr size_t kQ = 0, kK = 1, kV = 2, kState = 3;

// Which operands follow the state, by the rule; then rate, bias, with steps skip, and mask, where they are there.
struct Operands {
  explicit Operands(const Op& op) {
    const std::string& rule = std::get<std::string>(*op.find("update_rule"));
    has_decay = rule.find("gated") == 0;
    has_beta = rule.ends_with("delta");
    has_steps = op.find("steps") != nullptr;
  }
  bool has_decay, has_beta, has_steps;

  size_t decay() const { return kState + 1; }
  size_t beta() const { return decay() + (has_decay ? 1 : 0); }
  size_t rate() const { return beta() + (has_beta ? 1 : 0); }
  size_t bias() const { return rate() + 1; }
  size_t skip() const { return rate() + 2; }
  size_t mask() const { return skip() + (has_steps ? 1 : 0); }
};

bool is_in_place(const Op& op) { return op.find("state") != nullptr; }

std::vector<StateOperand> states_of_delta_rule(const Op& op) {
  if (is_in_place(op)) return {{kState, 1}};
  return {};
}

void check_gates(const OpCheck& op, const Operands& at, DType dtype) {
  const Shape &v = op.input(kV).shape, &state = op.input(kState).shape;
  if (at.has_decay) {
    const Value& decay = op.input(at.decay());
    op.not_a_weight(decay);
    const bool by_key = decay.shape.size() == 4;
    op.expect(decay, dtype, by_key ? Shape{v[0], v[1], v[2], state[2]} : Shape{v[0], v[1], v[2]});
  }
  if (at.has_beta) {
    op.not_a_weight(op.input(at.beta()));
    op.expect(op.input(at.beta()), dtype, {v[0], v[1], v[2]});
  }
  if (op.num_inputs() == at.rate() && !at.has_steps) return;
  if (!at.has_decay || at.has_beta == at.has_steps || op.input(at.decay()).shape.size() == 4)
    op.refuse("a rate goes with the rule gated_delta, or gated with steps, and one decay for each head");
  op.constant(op.input(at.rate()), DType::Float32, {v[2]});
  op.constant(op.input(at.bias()), DType::Float32, {v[2]});
  if (at.has_steps) op.constant(op.input(at.skip()), DType::Float32, {v[2]});
  if (op.num_inputs() == at.mask()) return;
  op.not_a_weight(op.input(at.mask()));
  op.expect(op.input(at.mask()), dtype, {v[0], v[1]});
}

void check_delta_rule(const OpCheck& op) {
  op.attributes({"update_rule", "scale", "state", "steps"});
  op.text_in("update_rule", {"linear", "gated", "delta", "gated_delta"});
  if (op.has_attribute("steps")) op.text_in("steps", {"softplus"});
  const Operands at(op.op());
  op.arity(at.has_steps ? at.mask() : at.rate(), at.mask() + 1, std::max<size_t>(op.op().outputs.size(), 2));
  if (op.num_inputs() == at.bias()) op.refuse("a rate without a bias");
  op.positive_number("scale", 1);
  const Value &q = op.input(kQ), &k = op.input(kK), &v = op.input(kV), &state = op.input(kState);
  const DType dtype = op.tensor(v);
  for (const Value* value : {&q, &k, &v, &state}) {
    op.not_a_weight(*value);
    op.rank(*value, 4);
  }
  op.expect(state, dtype, {v.shape[0], v.shape[2], state.shape[2], v.shape[3]});
  for (const Value* value : {&q, &k}) {
    op.expect(*value, dtype, {v.shape[0], v.shape[1], value->shape[2], state.shape[2]});
    if (v.shape[2] % value->shape[2] != 0)
      op.refuse("'", value->name, "' has ", value->shape[2], " heads, expected a divisor of the ", v.shape[2], " of '",
                v.name, "'");
  }
  check_gates(op, at, dtype);
  op.expect(op.output(0), dtype, v.shape);
  op.states_after(state, v.shape[1]);
  if (!is_in_place(op.op())) return;
  op.text_in("state", {"in_place"});
  if (state.kind != ValueKind::State) op.refuse("'", state.name, "' is ", describe(state), ", expected a state");
  if (op.op().outputs.size() > 2) op.refuse("a state in place has no states after each token");
}

void plan_delta_rule(PlanBuilder& plan, const Op& op) {
  const Operands at(op);
  DeltaRuleSpec step;
  const auto read = [&](size_t i) {
    plan.values.reads(op.inputs[i], plan.next_step());
    return plan.values.rows(op.inputs[i]);
  };
  const Shape& state = plan.value(op.inputs[kState]).shape;
  step.elem = plan.values.elem(op.inputs[kV]);
  step.q = read(kQ);
  step.k = read(kK);
  step.v = read(kV);
  step.heads = state[1];
  step.keys = state[2];
  step.values = state[3];
  step.q_heads = plan.value(op.inputs[kQ]).shape[2];
  step.k_heads = plan.value(op.inputs[kK]).shape[2];
  step.has_decay = at.has_decay;
  step.has_beta = at.has_beta;
  if (at.has_decay) step.decay = read(at.decay());
  if (at.has_beta) step.beta = read(at.beta());
  if (op.inputs.size() > at.rate()) {
    step.rate_id = op.inputs[at.rate()];
    step.bias_id = op.inputs[at.bias()];
    if (at.has_steps) step.skip_id = op.inputs[at.skip()];
  }
  if (op.inputs.size() > at.mask()) step.mask = read_dense(plan, op, at.mask());
  const double scale = op.attribute("scale", -1.0);
  step.scale = float(scale > 0 ? scale : 1.0 / std::sqrt(double(step.keys)));
  step.state = read_dense(plan, op, kState);
  step.y = plan.result(op.outputs[0], op.inputs[kV]);
  if (is_in_place(op)) {
    plan.values.make_view(op.outputs[1], op.inputs[kState], 0, plan.values.rows(op.inputs[kState]).cols);
    plan.values.writes(op.inputs[kState], plan.next_step());
    step.new_states = {step.state};
  } else {
    for (size_t i = 1; i < op.outputs.size(); ++i) step.new_states.push_back(write_dense(plan, op, i));
  }
  plan.append(std::move(step));
}

void cost_delta_rule(const Graph& graph, const Op& op, OpCost& cost) {
  const Value &v = graph.values[op.inputs[kV]], &state = graph.values[op.inputs[kState]];
  cost.work = WorkKind::Product;
  cost.operations = 8 * uint64_t(num_elements(v.shape) * state.shape[2]);  // read twice, scaled, updated
}

}  // namespace

extern const OpDefinition DeltaRule = {
    "q [B, T, q_heads, K] T, k [B, T, k_heads, K] T, v [B, T, heads, V] T, state [B, heads, K, V] T; decay [B, T, "
    "heads] or [B, T, heads, K] T with the rules gated and gated_delta; beta [B, T, heads] T with delta and "
    "gated_delta; weights rate, bias, with steps skip, float32 [heads] (optional); mask [B, T] T (optional, with them) "
    "{update_rule: \"linear\", \"gated\", \"delta\" or \"gated_delta\"; scale: float, default 1/sqrt(K); state: "
    "\"in_place\", optional; steps: \"softplus\" (optional, with the rule gated and a rate)} -> y like v, new state "
    "like state, or T such states; q_heads and k_heads divide heads",
    "ONNX's LinearAttention, token by token: S = exp(decay) * S; S += k * beta * (v - S^T k), or k * v without beta; "
    "y = scale * S^T q. With rate and bias, decay stands for rate * softplus(decay + bias) and beta for sigmoid(beta). "
    "With steps, as in the state-space layers of Mamba-2, k * v is k * step * v, where step is this softplus, and "
    "skip * v is added to y. "
    "A token whose mask is 0 changes nothing and gives 0. Of T states each is that behind a token, rounded to T before "
    "the next token reads it. With state: \"in_place\" the state is of kind state, and the result is the same storage",
    Cut::Heads,
    check_delta_rule,
    plan_delta_rule,
    states_of_delta_rule,
    kNoOperand,
    cost_delta_rule,
    false,
    kNoOperand,
    kState};

}  // namespace tcim_lite::ops
