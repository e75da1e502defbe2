#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

void check_concat(const OpCheck& op) {
  const Value& first = op.first_input();
  op.arity(1, SIZE_MAX, 1);
  op.attributes({"axis"});
  dense(op, first);
  const size_t axis = op.axis_of(first);
  Shape shape = first.shape;
  shape[axis] = 0;
  for (size_t i = 0; i < op.num_inputs(); ++i) {
    const Value& x = op.input(i);
    op.rank(x, shape.size());
    const int64_t extent = x.shape[axis];
    Shape like = first.shape;
    like[axis] = extent;
    op.expect(x, first.dtype, like);
    shape[axis] += extent;
  }
  op.expect(op.output(0), first.dtype, shape);
}

void plan_concat(PlanBuilder& plan, const Op& op) {
  MoveSpec step = new_move(plan, op);
  const size_t axis = size_t(op.attribute("axis", int64_t{0}));
  const std::vector<int64_t> strides = strides_of(plan.value(op.outputs[0]).shape);
  int64_t offset = 0, outer = 1;
  for (size_t i = 0; i < axis; ++i) outer *= plan.value(op.outputs[0]).shape[i];
  // Operands that are runs of the result are computed there, and not copied.
  const bool of_parts =
      plan.joins() == Joins::Products && outer == 1 && step.bytes == elem_bytes(plan.values.elem(op.outputs[0]));
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Shape& shape = plan.value(op.inputs[i]).shape;
    step.boxes.push_back(box(read_rows(plan, op, i, axis >= 2), shape, strides_of(shape), strides));
    step.boxes.back().y_offset = offset;
    if (of_parts && plan.value(op.inputs[i]).kind != ValueKind::Weight)
      plan.values.place_within(op.inputs[i], op.outputs[0], offset);
    offset += shape[axis] * strides[axis];
  }
  append_dense(plan, op, std::move(step));
}

}  // namespace

extern const OpDefinition Concat = {"x, .. of one dtype {axis: int} -> same dtype", "the operands side by side",
                                    Cut::Rows, check_concat, plan_concat};

}  // namespace tcim_lite::ops
