#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

void check_expand(const OpCheck& op) {
  op.arity(1, 1, 1);
  op.attributes({});
  const Value &x = op.input(0), &y = op.output(0);
  dense(op, x);
  if (broadcast_shape(op, x, y) != y.shape)
    op.refuse("'", x.name, "' is ", describe(x), ", which does not repeat to '", y.name, "', ", describe(y));
  op.expect(y, x.dtype, y.shape);
}

void plan_expand(PlanBuilder& plan, const Op& op) {
  MoveSpec step = new_move(plan, op);
  const Shape& shape = plan.value(op.outputs[0]).shape;
  const std::vector<int64_t> strides = broadcast_strides(plan.value(op.inputs[0]).shape, shape);
  step.boxes = {box(read_operand(plan, op, 0), shape, strides, strides_of(shape))};
  append_dense(plan, op, std::move(step));
}

}  // namespace

extern const OpDefinition Expand = {"x -> same dtype, a shape that x repeats to", "x repeated along its axes of 1",
                                    Cut::None, check_expand, plan_expand};

}  // namespace tcim_lite::ops
