#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

void check_layer_norm(const OpCheck& op) {
  op.arity(1, 3, 1);
  op.attributes({"epsilon"});
  const Value& x = op.input(0);
  const DType dtype = op.tensor(x);
  for (size_t i = 1; i < op.num_inputs(); ++i) op.constant(op.input(i), DType::Float32, {x.shape.back()});
  op.positive_number("epsilon", 1e-5);
  op.expect(op.output(0), dtype, x.shape);
}

void plan_layer_norm(PlanBuilder& plan, const Op& op) {
  auto step = step_over_rows<LayerNormSpec>(plan, op);
  step.epsilon = float(op.attribute("epsilon", 1e-5));
  if (op.inputs.size() > 1) step.weight_id = op.inputs[1];
  if (op.inputs.size() > 2) step.bias_id = op.inputs[2];
  step.x = read_elements(plan, op, 0, op.outputs[0]);
  append_dense(plan, op, std::move(step));
}

}  // namespace

extern const OpDefinition LayerNorm = {
    "x [.., n] T, weight [n] float32 (optional), bias [n] float32 (optional) {epsilon: number (1e-5)} -> like x",
    "(x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis", Cut::None, check_layer_norm,
    plan_layer_norm};

}  // namespace tcim_lite::ops
