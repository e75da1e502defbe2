#include "graph/ops/dense.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tcim_lite::ops {
namespace {

// False where `text` is no list of whole numbers.
bool parse(std::string_view text, std::vector<int64_t>& list) {
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value > INT32_MAX || value < -int64_t{INT32_MAX}) return false;
    list.push_back(value);
    at = next;
    if (at == end) return true;
    if (*at++ != ',') return false;
  }
  return false;
}

}  // namespace

std::vector<int64_t> numbers(const OpCheck& op, std::string_view key, size_t count) {
  const AttributeValue* value = op.op().find(key);
  std::vector<int64_t> list;
  if (value == nullptr || !std::holds_alternative<std::string>(*value) || !parse(std::get<std::string>(*value), list) ||
      list.size() != count)
    op.refuse("attribute '", key, "' is not a text of ", count, " whole numbers, such as \"1,2\"");
  return list;
}

std::vector<int64_t> numbers_of(const Op& op, std::string_view key) {
  std::vector<int64_t> list;
  parse(std::get<std::string>(*op.find(key)), list);
  return list;
}

double number(const OpCheck& op, std::string_view key, double fallback) {
  const AttributeValue* value = op.op().find(key);
  if (value == nullptr) return fallback;
  if (std::holds_alternative<std::string>(*value)) op.refuse("attribute '", key, "' is a string, expected a number");
  const double result = op.op().attribute(key, fallback);
  if (!std::isfinite(result)) op.refuse("attribute '", key, "' is ", result, ", expected a finite number");
  return result;
}

bool flag(const OpCheck& op, std::string_view key) {
  if (!op.has_attribute(key)) return false;
  const int64_t value = op.whole_number(key);
  if (value != 0 && value != 1) op.refuse("attribute '", key, "' is ", value, ", expected 0 or 1");
  return value == 1;
}

DType tensor_or_integers(const OpCheck& op, const Value& value, bool integers) {
  if (!integers || value.dtype != DType::Int32) return op.tensor(value);
  op.not_a_weight(value);
  return DType::Int32;
}

Elem computed_elem(PlanBuilder& plan, uint32_t value) {
  return plan.value(value).dtype == DType::Int32 ? kI32 : plan.values.elem(value);
}

int function_of(OpKind kind) {
#define TCIM_LITE_UNARY(name, version, meaning) \
  if (kind == OpKind::name) return k##name;
#include "graph/ops.def"
  return -1;
}

int elementwise_of(OpKind kind) {
#define TCIM_LITE_ELEMENTWISE(name, version, meaning) \
  if (kind == OpKind::name) return k##name;
#include "graph/ops.def"
  return -1;
}

void tensor_or_weight(const OpCheck& op, const Value& value, DType dtype) {
  if (value.kind != ValueKind::Weight) {
    if (dtype == DType::Int32) return op.expect(value, dtype, value.shape);
    op.tensor(value);
    return;
  }
  if (value.format != WeightFormat::Dense || value.dtype != dtype)
    op.refuse("'", value.name, "' is ", describe(value), ", expected a dense weight of ", name_of(dtype));
}

void dense(const OpCheck& op, const Value& value) {
  if (value.format != WeightFormat::Dense)
    op.refuse("'", value.name, "' is ", describe(value), ", expected no packing");
}

Shape broadcast_shape(const OpCheck& op, const Value& a, const Value& b) {
  Shape shape(std::max(a.shape.size(), b.shape.size()), 1);
  for (const Value* value : {&a, &b}) {
    const size_t lead = shape.size() - value->shape.size();
    for (size_t axis = 0; axis < value->shape.size(); ++axis) {
      int64_t& extent = shape[lead + axis];
      const int64_t own = value->shape[axis];
      if (own != extent && own != 1 && extent != 1)
        op.refuse("'", a.name, "' is ", describe(a), " and '", b.name, "' is ", describe(b),
                  ": extents must be equal or 1");
      extent = std::max(extent, own);
    }
  }
  return shape;
}

std::vector<int64_t> strides_of(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
  return strides;
}

std::vector<int64_t> broadcast_strides(const Shape& shape, const Shape& broad) {
  std::vector<int64_t> strides(broad.size(), 0);
  const std::vector<int64_t> own = strides_of(shape);
  const size_t lead = broad.size() - shape.size();
  for (size_t axis = 0; axis < shape.size(); ++axis) strides[lead + axis] = shape[axis] == 1 ? 0 : own[axis];
  return strides;
}

uint32_t read_dense(PlanBuilder& plan, const Op& op, size_t input) {
  const uint32_t id = op.inputs[input];
  const Rows rows = plan.values.rows(id);
  if (rows.stride != rows.cols || rows.limited) {
    fail(ErrorCode::Unsupported, name_of(op.kind), " of '", plan.value(id).name,
         "': the planner takes no slice of a value here, and none with live rows");
  }
  plan.values.reads(id, plan.next_step());
  return rows.value;
}

uint32_t read_elements(PlanBuilder& plan, const Op& op, size_t input, uint32_t y) {
  const uint32_t id = op.inputs[input];
  const Rows rows = plan.values.rows(id);
  if (!rows.limited || rows.stride != rows.cols || plan.value(id).shape != plan.value(y).shape)
    return read_dense(plan, op, input);
  plan.values.reads(id, plan.next_step());
  plan.values.follows(y, id);
  return rows.value;
}

Operand read_rows(PlanBuilder& plan, const Op& op, size_t input, bool as_rows) {
  const uint32_t id = op.inputs[input];
  const Rows rows = plan.values.rows(id);
  if (!as_rows || !rows.limited || rows.stride != rows.cols) return read_operand(plan, op, input);
  plan.values.reads(id, plan.next_step());
  plan.values.follows(op.outputs[0], id);
  return {rows.value, false};
}

bool is_narrow_weight(const PlanBuilder& plan, uint32_t value) {
  return plan.numerics() == Numerics::Float && plan.value(value).kind == ValueKind::Weight &&
         plan.value(value).dtype == DType::Float16;
}

Operand read_operand(PlanBuilder& plan, const Op& op, size_t input) {
  const uint32_t id = op.inputs[input];
  if (plan.value(id).kind != ValueKind::Weight) return {read_dense(plan, op, input), false};
  if (is_narrow_weight(plan, id)) {
    fail(ErrorCode::Unsupported, name_of(op.kind), " with the float16 weight '", plan.value(id).name,
         "': TCIM_LITE_NUMERICS=float widens activations alone; unset it, or compile with --quant float32");
  }
  return {id, true};
}

uint32_t write_dense(PlanBuilder& plan, const Op& op, size_t output) {
  plan.values.writes(op.outputs[output], plan.next_step());
  return op.outputs[output];
}

int64_t element_bytes(PlanBuilder& plan, uint32_t value) {
  const DType dtype = plan.value(value).dtype;
  return dtype == DType::Float16 ? elem_bytes(plan.values.elem(value)) : size_of(dtype);
}

MoveSpec new_move(PlanBuilder& plan, const Op& op) {
  MoveSpec step;
  step.bytes = element_bytes(plan, op.outputs[0]);
  step.count = num_elements(plan.value(op.outputs[0]).shape);
  return step;
}

Box box(const Operand& x, const Shape& extents, const std::vector<int64_t>& x_strides,
        const std::vector<int64_t>& y_strides) {
  Box result;
  result.x = x;
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    if (extents[axis] == 1) continue;
    const int last = result.axes - 1;
    // An axis that goes on where the one before it ends is one with it.
    if (last >= 0 && result.x_strides[last] == x_strides[axis] * extents[axis] &&
        result.y_strides[last] == y_strides[axis] * extents[axis]) {
      result.extents[last] *= extents[axis];
      result.x_strides[last] = x_strides[axis];
      result.y_strides[last] = y_strides[axis];
      continue;
    }
    result.extents[result.axes] = extents[axis];
    result.x_strides[result.axes] = x_strides[axis];
    result.y_strides[result.axes] = y_strides[axis];
    ++result.axes;
  }
  return result;
}

Middle middle_of(const Shape& shape, int64_t axis) {
  Middle middle;
  for (int64_t i = 0; i < int64_t(shape.size()); ++i) {
    int64_t& part = i < axis ? middle.outer : i == axis ? middle.extent : middle.inner;
    part *= shape[size_t(i)];
  }
  return middle;
}

}  // namespace tcim_lite::ops
