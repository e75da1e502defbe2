#include <algorithm>

#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

void check_transpose(const OpCheck& op) {
  op.arity(1, 1, 1);
  op.attributes({"axes"});
  const Value& x = op.input(0);
  dense(op, x);
  const std::vector<int64_t> axes = numbers(op, "axes", x.shape.size());
  Shape shape;
  for (int64_t axis = 0; axis < int64_t(axes.size()); ++axis) {
    if (std::count(axes.begin(), axes.end(), axis) != 1) op.refuse("attribute 'axes' is no permutation of the axes");
  }
  for (int64_t axis : axes) shape.push_back(x.shape[size_t(axis)]);
  op.expect(op.output(0), x.dtype, shape);
}

// Whether the one reader is a MatMul whose right side this is, with terms of a column side by side before, and of few
// rows where others want a copy. What the Transpose reads stays as it is until then, unless it is a state.
bool is_part_of_product(PlanBuilder& plan, const Op& op) {
  if (plan.joins() == Joins::None || plan.values.is_state(op.inputs[0])) return false;
  const Op* product = plan.values.sole_consumer(op.outputs[0]);
  if (product == nullptr || product->kind != OpKind::MatMul || product->inputs[1] != op.outputs[0]) return false;
  const std::vector<int64_t> axes = numbers_of(op, "axes");
  const Shape& y = plan.value(product->outputs[0]).shape;
  const bool takes_rows = plan.joins() == Joins::Turned || y[y.size() - 2] <= kFewTurnedRows;
  return takes_rows && axes[axes.size() - 2] == int64_t(axes.size()) - 1;
}

void plan_transpose(PlanBuilder& plan, const Op& op) {
  if (is_part_of_product(plan, op)) return plan.defer_transpose(op);
  MoveSpec step = new_move(plan, op);
  const std::vector<int64_t> own = strides_of(plan.value(op.inputs[0]).shape);
  std::vector<int64_t> strides;
  for (int64_t axis : numbers_of(op, "axes")) strides.push_back(own[size_t(axis)]);
  const Shape& shape = plan.value(op.outputs[0]).shape;
  step.boxes = {box(read_operand(plan, op, 0), shape, strides, strides_of(shape))};
  append_dense(plan, op, std::move(step));
}

}  // namespace

extern const OpDefinition Transpose = {"x {axes: \"2,0,1\"} -> same dtype, axis i is axis axes[i] of x",
                                       "another order of the axes", Cut::None, check_transpose, plan_transpose};

}  // namespace tcim_lite::ops
