#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

void check_moe_combine(const OpCheck& op) {
  op.arity(2, 2, 1);
  op.attributes({});
  const Value& x = op.input(0);
  const DType dtype = op.tensor(x);
  op.rank(x, 4);
  op.not_a_weight(op.input(1));
  op.expect(op.input(1), dtype, {x.shape[0], x.shape[1], x.shape[2]});
  op.expect(op.output(0), dtype, {x.shape[0], x.shape[1], x.shape[3]});
}

void plan_moe_combine(PlanBuilder& plan, const Op& op) {
  MoECombineSpec step;
  step.elem = plan.values.elem(op.inputs[0]);
  step.x = plan.values.rows(op.inputs[0]);
  step.weights = plan.values.rows(op.inputs[1]);
  step.chosen = step.weights.cols;
  plan.values.reads(op.inputs[0], plan.next_step());
  plan.values.reads(op.inputs[1], plan.next_step());
  uint32_t y = op.outputs[0];
  if (const Op* consumer = plan.values.sole_consumer(y);
      consumer != nullptr && consumer->kind == OpKind::Add && consumer->find("broadcast") == nullptr) {
    const uint32_t other = consumer->inputs[0] == y ? consumer->inputs[1] : consumer->inputs[0];
    if (plan.values.produced(other)) {
      step.adds = true;
      step.residual = plan.values.rows(other);
      plan.values.reads(other, plan.next_step());
      plan.absorb(*consumer);
      y = consumer->outputs[0];
    }
  }
  step.y = plan.result(y, op.inputs[0]);
  plan.append(std::move(step));
}

}  // namespace

extern const OpDefinition MoECombine = {"x [B, T, k, N] T, weights [B, T, k] T -> [B, T, N] T",
                                        "the sum over k of weights * x", Cut::Columns, check_moe_combine,
                                        plan_moe_combine};

}  // namespace tcim_lite::ops
