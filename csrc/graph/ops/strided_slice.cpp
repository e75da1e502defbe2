#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

void check_strided_slice(const OpCheck& op) {
  op.arity(1, 1, 1);
  op.attributes({"starts", "steps"});
  const Value &x = op.input(0), &y = op.output(0);
  dense(op, x);
  const size_t rank = x.shape.size();
  const std::vector<int64_t> starts = numbers(op, "starts", rank), steps = numbers(op, "steps", rank);
  op.rank(y, rank);
  op.expect(y, x.dtype, y.shape);
  for (size_t axis = 0; axis < rank; ++axis) {
    if (y.shape[axis] > x.shape[axis])
      op.refuse("'", y.name, "' is ", describe(y), ", more than '", x.name, "', ", describe(x));
    const int64_t last = starts[axis] + (y.shape[axis] - 1) * steps[axis];
    if (starts[axis] < 0 || starts[axis] >= x.shape[axis] || last < 0 || last >= x.shape[axis] || steps[axis] == 0)
      op.refuse("from ", starts[axis], " in steps of ", steps[axis], " axis ", int64_t(axis), " of '", y.name, "', ",
                describe(y), ", leaves '", x.name, "', ", describe(x));
  }
}

void plan_strided_slice(PlanBuilder& plan, const Op& op) {
  MoveSpec step = new_move(plan, op);
  std::vector<int64_t> strides = strides_of(plan.value(op.inputs[0]).shape);
  const std::vector<int64_t> starts = numbers_of(op, "starts"), steps = numbers_of(op, "steps");
  const Shape& shape = plan.value(op.outputs[0]).shape;
  int64_t offset = 0;
  bool as_rows = shape.size() > 2;  // all of them, in their order
  for (size_t axis = 0; axis < 2 && as_rows; ++axis) as_rows = shape[axis] == plan.value(op.inputs[0]).shape[axis];
  for (size_t axis = 0; axis < 2 && as_rows; ++axis) as_rows = shape[axis] == 1 || steps[axis] == 1;
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    offset += starts[axis] * strides[axis];
    strides[axis] *= steps[axis];
  }
  step.boxes = {box(read_rows(plan, op, 0, as_rows), shape, strides, strides_of(shape))};
  step.boxes[0].x_offset = offset;
  append_dense(plan, op, std::move(step));
}

}  // namespace

extern const OpDefinition StridedSlice = {
    "x {starts: \"0,4\", steps: \"1,-2\"} -> same dtype and rank, y[i, ..] = x[starts + i * steps, ..]",
    "elements of every axis, at equal distances", Cut::Rows, check_strided_slice, plan_strided_slice};

}  // namespace tcim_lite::ops
