#include "graph/ops/activations.h"
#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

void check_head_linear(const OpCheck& op) {
  op.arity(2, 2, 1);
  op.attributes({kActivations});
  const Value &x = op.input(0), &weight = op.input(1);
  const DType dtype = op.tensor(x);
  op.rank(x, 4);
  if (weight.kind != ValueKind::Weight || weight.format == WeightFormat::Dense || weight.shape.size() != 3)
    op.refuse("'", weight.name, "' is ", describe(weight), ", expected a weight [heads, N, K] in a packed format");
  if (weight.shape[0] != x.shape[2] || weight.shape[2] != x.shape[3])
    op.refuse("'", x.name, "' is ", describe(x), ", the weight '", weight.name, "' is ", describe(weight),
              ": heads and the last extents must agree");
  check_activations(op, dtype, weight);
  op.expect(op.output(0), dtype, OpCheck::with_last(x.shape, weight.shape[1]));
}

// As experts of which every token takes each.
void plan_head_linear(PlanBuilder& plan, const Op& op) {
  MoELinearSpec step;
  const uint32_t x = op.inputs[0];
  read_matrix(plan, op, x, 1, step.linear);
  step.in_order = true;
  step.experts = step.chosen = plan.value(op.inputs[1]).shape[0];
  plan.values.reads(x, plan.next_step());
  step.linear.y = plan.result(op.outputs[0], x);
  plan.append(std::move(step));
}

}  // namespace

extern const OpDefinition HeadLinear = {
    "x [B, T, heads, K] T, weight [heads, N, K] packed {activations: \"hidden_exponent\", optional} -> "
    "[B, T, heads, N] T",
    "of each head x weight[head]^T",
    Cut::Heads,
    check_head_linear,
    plan_head_linear,
    nullptr,
    kNoOperand,
    cost_linear};

}  // namespace tcim_lite::ops
