#include <string_view>

#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

void check_silu_mul(const OpCheck& op) {
  op.arity(1, 1, 1);
  op.attributes({"alpha", "limit", "function"});
  if (op.has_attribute("function")) op.text_in("function", {"gelu_tanh"});
  if (op.has_attribute("alpha") || op.has_attribute("limit")) {
    if (op.has_attribute("function")) op.refuse("attribute 'function' does not go with alpha and limit");
    for (std::string_view key : {"alpha", "limit"}) {
      if (!op.has_attribute(key))
        op.refuse("attribute '", key, "' is missing, expected both of alpha and limit, or none");
      op.positive_number(key, 0);
    }
  }
  const Value& x = op.input(0);
  const DType dtype = op.tensor(x);
  if (x.shape.back() % (2 * kBlockOutputs) != 0)
    op.refuse("'", x.name, "' is ", describe(x), ", expected a last extent that is a multiple of ", 2 * kBlockOutputs);
  op.expect(op.output(0), dtype, OpCheck::with_last(x.shape, x.shape.back() / 2));
}

void plan_silu_mul(PlanBuilder& plan, const Op& op) {
  SiluMulSpec step;
  step.elem = plan.values.elem(op.inputs[0]);
  step.x = plan.values.rows(op.inputs[0]);
  step.alpha = float(op.attribute("alpha", 0.0));
  step.limit = float(op.attribute("limit", 0.0));
  step.gelu = op.find("function") != nullptr;
  plan.values.reads(op.inputs[0], plan.next_step());
  step.y = plan.result(op.outputs[0], op.inputs[0]);
  plan.append(std::move(step));
}

}  // namespace

extern const OpDefinition SiluMul = {
    "x [.., 2 I] T {alpha: float, limit: float, both or neither; or function: \"gelu_tanh\", optional} -> [.., I] T",
    "silu(gate) * up; gate and up alternate in blocks of 16 columns of x. With a limit, (up + 1) * gate * "
    "sigmoid(alpha * gate), where gate is at most the limit and up in [-limit, limit]. With a function, GeluTanh of "
    "the gate times up",
    Cut::Columns, check_silu_mul, plan_silu_mul};

}  // namespace tcim_lite::ops
