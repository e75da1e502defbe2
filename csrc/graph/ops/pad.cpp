#include <bit>

#include "base/half.h"
#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

void check_pad(const OpCheck& op) {
  op.arity(1, 1, 1);
  op.attributes({"begins", "value"});
  const Value &x = op.input(0), &y = op.output(0);
  const DType dtype = op.tensor(x);
  const std::vector<int64_t> begins = numbers(op, "begins", x.shape.size());
  number(op, "value", 0);
  op.rank(y, x.shape.size());
  op.expect(y, dtype, y.shape);
  for (size_t axis = 0; axis < begins.size(); ++axis) {
    if (begins[axis] < 0 || begins[axis] + x.shape[axis] > y.shape[axis])
      op.refuse("'", x.name, "', ", describe(x), ", at ", begins[axis], " of axis ", int64_t(axis), " leaves '", y.name,
                "', ", describe(y));
  }
}

void plan_pad(PlanBuilder& plan, const Op& op) {
  MoveSpec step = new_move(plan, op);
  const Shape& shape = plan.value(op.inputs[0]).shape;
  const std::vector<int64_t> strides = strides_of(plan.value(op.outputs[0]).shape);
  const std::vector<int64_t> begins = numbers_of(op, "begins");
  step.boxes = {box(read_operand(plan, op, 0), shape, strides_of(shape), strides)};
  for (size_t axis = 0; axis < strides.size(); ++axis) step.boxes[0].y_offset += begins[axis] * strides[axis];
  const float value = float(op.attribute("value", 0.0));
  step.fills = true;
  step.fill = step.bytes == 2 ? float_to_half_saturate(value) : std::bit_cast<uint32_t>(value);
  append_dense(plan, op, std::move(step));
}

}  // namespace

extern const OpDefinition Pad = {
    "x T {begins: \"0,1\", value: number (0)} -> T of the same rank, y[begins + i, ..] = x[i, ..]",
    "x inside a larger tensor of one value", Cut::None, check_pad, plan_pad};

}  // namespace tcim_lite::ops
