#include "base/error.h"
#include "graph/ops/activations.h"
#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

void check_moe_linear(const OpCheck& op) {
  op.arity(3, 4, 1);
  op.attributes({kActivations});
  const Value &x = op.input(0), &ids = op.input(1), &weight = op.input(2);
  const DType dtype = op.tensor(x);
  // So every id is one of an expert, whatever a caller feeds.
  const Op* route = op.producer_of(1);
  if (route == nullptr || route->kind != OpKind::MoERoute || route->outputs[0] != op.op().inputs[1])
    op.refuse("'", ids.name, "' is ", describe(ids), ", expected the ids that a MoERoute makes");
  const Shape& chosen = ids.shape;
  if (weight.kind != ValueKind::Weight || weight.format == WeightFormat::Dense || weight.shape.size() != 3)
    op.refuse("'", weight.name, "' is ", describe(weight), ", expected a weight [E, N, K] in a packed format");
  const int64_t experts = op.value(route->inputs[0]).shape[2];
  if (weight.shape[0] != experts)
    op.refuse("the weight '", weight.name, "' is ", describe(weight), ", expected ", experts,
              " experts: so many logits choose '", ids.name, "'");
  const Shape shared = {chosen[0], chosen[1], weight.shape[2]};
  const Shape own = {chosen[0], chosen[1], chosen[2], weight.shape[2]};
  if (x.shape != shared && x.shape != own)
    op.refuse("'", x.name, "' is ", describe(x), ", expected ", to_string(shared), " or ", to_string(own),
              " for the weight '", weight.name, "', ", describe(weight));
  check_activations(op, dtype, weight);
  if (op.num_inputs() == 4) op.constant(op.input(3), DType::Float32, {experts, weight.shape[1]});
  op.expect(op.output(0), dtype, {chosen[0], chosen[1], chosen[2], weight.shape[1]});
}

void plan_moe_linear(PlanBuilder& plan, const Op& op) {
  MoELinearSpec step;
  LinearSpec& linear = step.linear;
  const uint32_t x = op.inputs[0];
  read_matrix(plan, op, x, 2, linear);
  step.ids = plan.values.rows(op.inputs[1]);
  step.experts = plan.value(op.inputs[2]).shape[0];
  step.chosen = step.ids.cols;
  plan.values.reads(x, plan.next_step());
  plan.values.reads(op.inputs[1], plan.next_step());
  uint32_t y = op.outputs[0];
  if (const Op* consumer = plan.values.sole_consumer(y); consumer != nullptr && is_plain_silu_mul(*consumer)) {
    linear.epilogue = LinearSpec::Epilogue::SiluMul;
    plan.absorb(*consumer);
    y = consumer->outputs[0];
  }
  linear.y = plan.result(y, x);
  plan.append(std::move(step));
}

void cost_moe_linear(const Graph& graph, const Op& op, OpCost& cost) {
  const Value& ids = graph.values[op.inputs[1]];
  cost_matrix(graph.values[op.inputs[2]], uint64_t(num_elements(ids.shape)), cost);
}

}  // namespace

extern const OpDefinition MoELinear = {
    "x [B, T, K] or [B, T, k, K] T, ids [B, T, k] int32 of a MoERoute, weight [E, N, K] packed, bias [E, N] float32 "
    "(optional) {activations: \"hidden_exponent\", optional} -> [B, T, k, N] T",
    "for each of a token's experts x weight[id]^T + bias[id]",
    Cut::Columns,
    check_moe_linear,
    plan_moe_linear,
    nullptr,
    kNoOperand,
    cost_moe_linear,
    false,
    1};

}  // namespace tcim_lite::ops
