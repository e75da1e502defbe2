#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

void check_silu_mul(const OpCheck& op) {
  op.arity(1, 1, 1);
  op.attributes({});
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
  plan.values.reads(op.inputs[0], plan.next_step());
  step.y = plan.result(op.outputs[0], op.inputs[0]);
  plan.append(std::move(step));
}

}  // namespace

extern const OpDefinition SiluMul = {"x [.., 2 I] T -> [.., I] T",
                                     "silu(gate) * up; gate and up alternate in blocks of 16 columns of x",
                                     Cut::Columns, check_silu_mul, plan_silu_mul};

}  // namespace tcim_lite::ops
