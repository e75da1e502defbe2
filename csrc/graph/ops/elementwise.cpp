// The elementwise ops of ops.def: they differ in what kernels compute and in nothing that a graph knows.
#include <utility>

#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

void check_elementwise(const OpCheck& op) {
  op.arity(2, 2, 1);
  op.attributes({});
  const DType dtype = op.tensor(op.input(0));
  op.tensor(op.input(1));
  op.expect(op.input(1), dtype, op.input(0).shape);
  op.expect(op.output(0), dtype, op.input(0).shape);
}

template <ElementwiseOp kind>
void plan_elementwise(PlanBuilder& plan, const Op& op) {
  ElementwiseSpec step;
  step.op = kind;
  step.elem = plan.values.elem(op.inputs[0]);
  step.a = plan.values.rows(op.inputs[0]);
  step.b = plan.values.rows(op.inputs[1]);
  for (uint32_t id : op.inputs) plan.values.reads(id, plan.next_step());
  step.y = plan.result(op.outputs[0], step.a.limited ? op.inputs[0] : op.inputs[1]);
  plan.append(std::move(step));
}

}  // namespace

#define TCIM_LITE_ELEMENTWISE(name, version, what)                                                    \
  extern const OpDefinition name = {"a T, b like a -> like a", what, Cut::Columns, check_elementwise, \
                                    plan_elementwise<k##name>};
#include "graph/ops.def"

}  // namespace tcim_lite::ops
