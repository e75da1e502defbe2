#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

void check_gather(const OpCheck& op) {
  op.arity(2, 2, 1);
  op.attributes({"axis"});
  const Value &x = op.input(0), &indices = op.input(1);
  dense(op, x);
  dense(op, indices);
  op.rank(indices, 1);
  op.expect(indices, DType::Int32, indices.shape);
  const size_t axis = op.axis_of(x);
  Shape shape = x.shape;
  shape[axis] = indices.shape[0];
  op.expect(op.output(0), x.dtype, shape);
}

void plan_gather(PlanBuilder& plan, const Op& op) {
  GatherSpec step;
  const Middle middle = middle_of(plan.value(op.inputs[0]).shape, op.attribute("axis", int64_t{0}));
  step.outer = middle.outer;
  step.extent = middle.extent;
  step.inner = middle.inner;
  step.count = num_elements(plan.value(op.inputs[1]).shape);
  step.bytes = element_bytes(plan, op.outputs[0]);
  step.x = read_operand(plan, op, 0);
  step.indices = read_operand(plan, op, 1);
  plan.add_position_rule(op.inputs[1], step.extent);
  append_dense(plan, op, std::move(step));
}

}  // namespace

extern const OpDefinition Gather = {
    "x, indices [n] int32 {axis: int} -> same dtype, n at the axis",
    "x[indices] along an axis; an index below 0 counts from the end, one beyond either end is the end",
    Cut::None,
    check_gather,
    plan_gather,
    nullptr,
    kNoOperand,
    nullptr,
    true};

}  // namespace tcim_lite::ops
