// What the ops over dense tensors have in common: those that networks of images need, and that know no rows of tokens.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/ops/op_check.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {

// A list of whole numbers is a text attribute, "2,-1,3": the container has no lists.
std::vector<int64_t> numbers(const OpCheck& op, std::string_view key, size_t count);
std::vector<int64_t> numbers_of(const Op& op, std::string_view key);  // of a checked op

// A finite number, of any sign.
double number(const OpCheck& op, std::string_view key, double fallback);
bool flag(const OpCheck& op, std::string_view key);

// T, or int32 where `integers` may be operands: the dtype of a result.
DType tensor_or_integers(const OpCheck& op, const Value& value, bool integers);
// The element that a step computes with.
Elem computed_elem(PlanBuilder& plan, uint32_t value);
// Of `dtype`, T or int32: a tensor, or a dense weight.
void tensor_or_weight(const OpCheck& op, const Value& value, DType dtype);
// Any dtype: what is moved and not computed with.
void dense(const OpCheck& op, const Value& value);
// The shape that numpy's rules give two operands.
Shape broadcast_shape(const OpCheck& op, const Value& a, const Value& b);

// Elements from one index of each axis to the next.
std::vector<int64_t> strides_of(const Shape& shape);
// Those of an operand seen in a broader shape: 0 where it repeats.
std::vector<int64_t> broadcast_strides(const Shape& shape, const Shape& broad);

// The operand of the next step. Throws Error(Unsupported) for a value whose rows have gaps or need not be computed.
uint32_t read_dense(PlanBuilder& plan, const Op& op, size_t input);
// Likewise for an op each of whose results `y` is of the element there: an operand with live rows is read whole, and y
// has live rows too. What the op makes of the others is nobody's.
uint32_t read_elements(PlanBuilder& plan, const Op& op, size_t input, uint32_t y);
// Likewise of an op that moves rows as they are, of any number of columns: what it makes of an operand with live rows
// has live rows too, if `as_rows`; otherwise as read_operand().
Operand read_rows(PlanBuilder& plan, const Op& op, size_t input, bool as_rows);
// Whether a value is a float16 weight where TCIM_LITE_NUMERICS=float widens activations.
bool is_narrow_weight(const PlanBuilder& plan, uint32_t value);
// Refuses a narrow weight.
Operand read_operand(PlanBuilder& plan, const Op& op, size_t input);
uint32_t write_dense(PlanBuilder& plan, const Op& op, size_t output = 0);
int64_t element_bytes(PlanBuilder& plan, uint32_t value);

// The UnaryOp, or the ElementwiseOp, that an op is; -1: none.
int function_of(OpKind kind);
int elementwise_of(OpKind kind);

// A step over the rows of operand 0, which are its last axis.
template <typename Step>
Step step_over_rows(PlanBuilder& plan, const Op& op) {
  Step step;
  step.elem = computed_elem(plan, op.inputs[0]);
  const Shape& shape = plan.value(op.inputs[0]).shape;
  step.cols = shape.back();
  step.rows = num_elements(shape) / step.cols;
  return step;
}

// The last step of an op: writes its result, and reads operand 0.
template <typename Step>
void append_dense(PlanBuilder& plan, const Op& op, Step step) {
  step.y = write_dense(plan, op);
  plan.append(std::move(step));
}
template <typename Step>
void append_map(PlanBuilder& plan, const Op& op, Step step) {
  step.x = read_dense(plan, op, 0);
  append_dense(plan, op, std::move(step));
}

// A step that copies boxes, without boxes.
MoveSpec new_move(PlanBuilder& plan, const Op& op);
// A box over `extents` with the given strides of both sides.
Box box(const Operand& x, const Shape& extents, const std::vector<int64_t>& x_strides,
        const std::vector<int64_t>& y_strides);

// Axes of `axis` before, at and behind: the tensor as [outer, extent, inner].
struct Middle {
  int64_t outer = 1, extent = 1, inner = 1;
};
Middle middle_of(const Shape& shape, int64_t axis);

}  // namespace tcim_lite::ops
