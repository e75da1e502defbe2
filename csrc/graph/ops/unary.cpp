// The ops of one operand of ops.def: they differ in what kernels compute and in nothing that a graph knows.
#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

void check_unary(const OpCheck& op) {
  op.arity(1, 1, 1);
  op.attributes({"alpha", "beta"});
  number(op, "alpha", 0);
  number(op, "beta", 0);
  const DType dtype = op.tensor(op.input(0));
  op.expect(op.output(0), dtype, op.input(0).shape);
}

template <UnaryOp kind>
void plan_unary(PlanBuilder& plan, const Op& op) {
  UnarySpec step;
  step.op = kind;
  step.elem = plan.values.elem(op.inputs[0]);
  step.alpha = float(op.attribute("alpha", 0.0));
  step.beta = float(op.attribute("beta", 0.0));
  step.count = num_elements(plan.value(op.inputs[0]).shape);
  step.x = read_elements(plan, op, 0, op.outputs[0]);
  append_dense(plan, op, std::move(step));
}

}  // namespace

#define TCIM_LITE_UNARY(name, version, what)                                                                \
  extern const OpDefinition name = {"x T {alpha: number (0), beta: number (0)} -> like x", what, Cut::None, \
                                    check_unary, plan_unary<k##name>};
#include "graph/ops.def"

}  // namespace tcim_lite::ops
