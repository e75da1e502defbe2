#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

void check_rms_norm(const OpCheck& op) {
  op.arity(2, 2, 1);
  op.attributes({"epsilon"});
  const DType dtype = op.tensor(op.input(0));
  op.constant(op.input(1), DType::Float32, {op.input(0).shape.back()});
  if (!op.has_attribute("epsilon")) op.refuse("attribute 'epsilon' is missing");
  op.positive_number("epsilon", 0);
  op.expect(op.output(0), dtype, op.input(0).shape);
}

void plan_rms_norm(PlanBuilder& plan, const Op& op) {
  if (plan.starts_heads(op)) return plan.add_heads(op);
  const Op* consumer = plan.values.sole_consumer(op.outputs[0]);
  if (consumer != nullptr && consumer->kind == OpKind::Linear && consumer->inputs[0] == op.outputs[0])
    return plan.defer_norm(op);
  RmsNormSpec step;
  const uint32_t x = op.inputs[0];
  step.elem = plan.values.elem(x);
  step.x = plan.values.rows(x);
  step.weight_id = op.inputs[1];
  step.groups = step.x.cols / plan.value(op.inputs[1]).shape[0];
  step.epsilon = float(op.attribute("epsilon", 1e-6));
  plan.values.reads(x, plan.next_step());
  step.y = plan.result(op.outputs[0], x);
  plan.append(std::move(step));
}

}  // namespace

extern const OpDefinition RMSNorm = {"x [.., D] T, weight [D] float32 {epsilon: float} -> like x",
                                     "x / sqrt(mean(x^2) + epsilon) * weight over the last axis", Cut::Rows,
                                     check_rms_norm, plan_rms_norm};

}  // namespace tcim_lite::ops
