#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

void check_cast(const OpCheck& op) {
  op.arity(1, 1, 1);
  op.attributes({});
  const Value &x = op.input(0), &y = op.output(0);
  op.not_a_weight(x);
  if (y.dtype == DType::Int32) {
    op.tensor(x);
    op.expect(y, DType::Int32, x.shape);
    return;
  }
  op.expect(x, DType::Int32, x.shape);
  op.expect(y, op.tensor(y), x.shape);
}

void plan_cast(PlanBuilder& plan, const Op& op) {
  CastSpec step;
  step.from = computed_elem(plan, op.inputs[0]);
  step.to = computed_elem(plan, op.outputs[0]);
  step.count = num_elements(plan.value(op.inputs[0]).shape);
  append_map(plan, op, std::move(step));
}

}  // namespace

extern const OpDefinition Cast = {"x int32 -> T of its shape, or x T -> int32 of its shape",
                                  "the nearest number of T, in float16 at most 65504 with its sign; or x without its "
                                  "fraction, in int32 the nearest that there is, and 0 for NaN",
                                  Cut::None, check_cast, plan_cast};

}  // namespace tcim_lite::ops
