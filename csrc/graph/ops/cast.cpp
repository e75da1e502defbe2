#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

void check_cast(const OpCheck& op) {
  op.arity(1, 1, 1);
  op.attributes({});
  const Value& x = op.input(0);
  op.not_a_weight(x);
  op.expect(x, DType::Int32, x.shape);
  op.expect(op.output(0), op.tensor(op.output(0)), x.shape);
}

void plan_cast(PlanBuilder& plan, const Op& op) {
  CastSpec step;
  step.elem = plan.values.elem(op.outputs[0]);
  step.count = num_elements(plan.value(op.inputs[0]).shape);
  append_map(plan, op, std::move(step));
}

}  // namespace

extern const OpDefinition Cast = {"x int32 -> T of its shape",
                                  "the nearest number of T; in float16 at most 65504 with its sign", Cut::None,
                                  check_cast, plan_cast};

}  // namespace tcim_lite::ops
