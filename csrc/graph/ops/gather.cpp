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

// What is gathered of a narrow weight, and after it a copy to the dtype of activations.
void append_widened(PlanBuilder& plan, const Op& op, GatherSpec step) {
  PlanValues& values = plan.values;
  CopySpec copy;
  copy.from = kF16;
  copy.to = kF32;
  copy.y = values.rows(op.outputs[0]);
  step.y = values.add_copy(copy.y, copy.from);
  copy.x = values.rows(step.y);
  step.bytes = elem_bytes(copy.from);
  values.writes(step.y, plan.next_step());
  plan.append(std::move(step));
  values.reads(copy.x.value, plan.next_step());
  write_dense(plan, op);
  plan.append(std::move(copy));
}

void plan_gather(PlanBuilder& plan, const Op& op) {
  GatherSpec step;
  const Middle middle = middle_of(plan.value(op.inputs[0]).shape, op.attribute("axis", int64_t{0}));
  step.outer = middle.outer;
  step.extent = middle.extent;
  step.inner = middle.inner;
  step.count = num_elements(plan.value(op.inputs[1]).shape);
  step.bytes = element_bytes(plan, op.outputs[0]);
  const bool widens = is_narrow_weight(plan, op.inputs[0]);
  step.x = widens ? Operand{op.inputs[0], true} : read_operand(plan, op, 0);
  step.indices = read_operand(plan, op, 1);
  plan.add_position_rule(op.inputs[1], step.extent);
  if (widens) return append_widened(plan, op, std::move(step));
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
