#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

void check_gate_mul(const OpCheck& op) {
  op.arity(2, 2, 1);
  op.attributes({"function"});
  op.text_in("function", {"sigmoid", "silu", "softplus"});
  const Value &x = op.input(0), &gate = op.input(1);
  const DType dtype = op.tensor(x);
  op.not_a_weight(gate);
  if (x.shape.size() < 3) op.refuse("'", x.name, "' is ", describe(x), ", expected [B, T, ..]");
  const int64_t columns = num_elements(x.shape) / (x.shape[0] * x.shape[1]);
  if (gate.shape.size() == 3 && columns % gate.shape[2] == 0) {
    op.expect(gate, dtype, {x.shape[0], x.shape[1], gate.shape[2]});
  } else {
    op.expect(gate, dtype, x.shape);
  }
  op.expect(op.output(0), dtype, x.shape);
}

void plan_gate_mul(PlanBuilder& plan, const Op& op) {
  GateMulSpec step;
  step.elem = plan.values.elem(op.inputs[0]);
  step.x = plan.values.rows(op.inputs[0]);
  step.gate = plan.values.rows(op.inputs[1]);
  const std::string& function = std::get<std::string>(*op.find("function"));
  step.function = function == "silu" ? kSilu : function == "softplus" ? kSoftplus : kSigmoid;
  for (const uint32_t id : op.inputs) plan.values.reads(id, plan.next_step());
  step.y = plan.result(op.outputs[0], op.inputs[0]);
  plan.append(std::move(step));
}

}  // namespace

extern const OpDefinition GateMul = {
    "x [B, T, ..] T, gate like x or [B, T, G] T {function: \"sigmoid\", \"silu\" or \"softplus\"} -> like x",
    "x * function(gate), function(gate) not rounded; each of G gates is for as many elements of a token, side by side",
    Cut::Columns, check_gate_mul, plan_gate_mul};

}  // namespace tcim_lite::ops
