#include "graph/ops/activations.h"
#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

void check_linear(const OpCheck& op) {
  op.arity(2, 3, 1);
  op.attributes({kActivations});
  const Value &x = op.input(0), &weight = op.input(1);
  const DType dtype = op.tensor(x);
  if (weight.kind != ValueKind::Weight || weight.format == WeightFormat::Dense)
    op.refuse("'", weight.name, "' is ", describe(weight), ", expected a weight in a packed format");
  op.rank(weight, 2);
  if (weight.shape[1] != x.shape.back())
    op.refuse("'", x.name, "' is ", describe(x), ", the weight '", weight.name, "' is ", describe(weight),
              ": the last extents must agree");
  check_activations(op, dtype, weight);
  if (op.num_inputs() == 3) op.constant(op.input(2), DType::Float32, {weight.shape[0]});
  op.expect(op.output(0), dtype, OpCheck::with_last(x.shape, weight.shape[0]));
}

// What reads the result and nothing else does becomes the epilogue, if it can. Returns the value that the step writes.
uint32_t absorb_epilogue(PlanBuilder& plan, LinearSpec& step, uint32_t y) {
  const Op* consumer = plan.values.sole_consumer(y);
  if (consumer == nullptr) return y;
  if (is_plain_silu_mul(*consumer)) {
    step.epilogue = LinearSpec::Epilogue::SiluMul;
  } else if (consumer->kind == OpKind::Add && consumer->find("broadcast") == nullptr) {
    const uint32_t other = consumer->inputs[0] == y ? consumer->inputs[1] : consumer->inputs[0];
    if (!plan.values.produced(other)) return y;
    step.epilogue = LinearSpec::Epilogue::AddResidual;
    step.residual = plan.values.rows(other);
    plan.values.reads(other, plan.next_step());
  } else {
    return y;
  }
  plan.absorb(*consumer);
  return consumer->outputs[0];
}

void plan_linear(PlanBuilder& plan, const Op& op) {
  LinearSpec step;
  uint32_t x = op.inputs[0];
  if (const Op* norm = plan.prologue_norm(x)) {
    x = norm->inputs[0];
    step.norm_id = norm->inputs[1];
    step.norm_epsilon = float(norm->attribute("epsilon", 1e-6));
  }
  if (plan.values.rows(x).cols != plan.value(op.inputs[1]).shape[1]) {
    fail(ErrorCode::Unsupported, "Linear over '", plan.value(x).name, "' ", to_string(plan.value(x).shape),
         ": the planner takes [B, T, K], [N, K] or [K]");
  }
  read_matrix(plan, op, x, 1, step);
  plan.values.reads(x, plan.next_step());
  const uint32_t y = absorb_epilogue(plan, step, op.outputs[0]);
  step.y = plan.result(y, x);
  plan.append(std::move(step));
}

}  // namespace

extern const OpDefinition Linear = {
    "x [.., K] T, weight [N, K] packed, bias [N] float32 (optional) "
    "{activations: \"hidden_exponent\", optional} -> [.., N] T",
    "x weight^T + bias",
    Cut::Columns,
    check_linear,
    plan_linear,
    nullptr,
    kNoOperand,
    cost_linear};

}  // namespace tcim_lite::ops
