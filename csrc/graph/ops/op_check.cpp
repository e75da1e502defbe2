#include "graph/ops/op_check.h"

#include <algorithm>
#include <cmath>

#include "graph/ops/op_definition.h"

namespace tcim_lite {

void OpCheck::arity(size_t min_inputs, size_t max_inputs, size_t outputs) const {
  if (num_inputs() < min_inputs || num_inputs() > max_inputs)
    refuse("has ", num_inputs(), " inputs, expected ", min_inputs,
           max_inputs > min_inputs ? concat(" to ", max_inputs) : "");
  if (op_.outputs.size() != outputs) refuse("has ", op_.outputs.size(), " outputs, expected ", outputs);
}

const Value& OpCheck::first_input() const {
  if (op_.inputs.empty()) refuse("has 0 inputs, expected at least 1");
  return input(0);
}

size_t OpCheck::slots(const Value& value, size_t fixed, size_t per_slot) const {
  rank(value, 4);
  const auto wanted = uint64_t(value.shape[0]);
  if (num_inputs() < fixed || (num_inputs() - fixed) % per_slot != 0 || (num_inputs() - fixed) / per_slot != wanted)
    refuse("has ", num_inputs(), " inputs, expected ", fixed, " and ", per_slot, " for each of ", wanted, " slots");
  return size_t(wanted);
}

void OpCheck::attributes(std::initializer_list<std::string_view> known) const {
  for (const auto& [key, value] : op_.attributes) {
    if (std::find(known.begin(), known.end(), key) == known.end()) refuse("does not know the attribute '", key, "'");
  }
}

double OpCheck::positive_number(std::string_view key, double fallback) const {
  const AttributeValue* value = op_.find(key);
  if (value == nullptr) return fallback;
  if (std::holds_alternative<std::string>(*value)) refuse("attribute '", key, "' is a string, expected a number");
  const double number = op_.attribute(key, fallback);
  if (!std::isfinite(number) || number <= 0) refuse("attribute '", key, "' is ", number, ", expected more than 0");
  return number;
}

int64_t OpCheck::whole_number(std::string_view key) const {
  const AttributeValue* value = op_.find(key);
  if (value == nullptr) refuse("attribute '", key, "' is missing");
  if (!std::holds_alternative<int64_t>(*value)) refuse("attribute '", key, "' is not a whole number");
  return std::get<int64_t>(*value);
}

size_t OpCheck::axis_of(const Value& value) const {
  const int64_t axis = whole_number("axis");
  if (axis < 0 || axis >= int64_t(value.shape.size()))
    refuse("attribute 'axis' is ", axis, ", no axis of '", value.name, "'");
  return size_t(axis);
}

void OpCheck::text_in(std::string_view key, std::initializer_list<std::string_view> known) const {
  const AttributeValue* value = op_.find(key);
  if (value == nullptr || !std::holds_alternative<std::string>(*value)) refuse("attribute '", key, "' is no string");
  const std::string& text = std::get<std::string>(*value);
  if (std::find(known.begin(), known.end(), text) == known.end())
    refuse("attribute '", key, "' is '", text, "', which this version does not know");
}

void OpCheck::rank(const Value& value, size_t expected) const {
  if (value.shape.size() != expected) refuse("'", value.name, "' is ", describe(value), ", expected rank ", expected);
}

void OpCheck::expect(const Value& value, DType dtype, const Shape& shape) const {
  if (value.dtype != dtype || value.shape != shape || value.format != WeightFormat::Dense)
    refuse("'", value.name, "' is ", describe(value), ", expected ", name_of(dtype), " ", to_string(shape));
}

void OpCheck::constant(const Value& value, DType dtype, const Shape& shape) const {
  if (value.kind != ValueKind::Weight) refuse("'", value.name, "' is ", describe(value), ", expected a weight");
  expect(value, dtype, shape);
}

void OpCheck::not_a_weight(const Value& value) const {
  if (value.kind == ValueKind::Weight)
    refuse("'", value.name, "' is a weight, expected an input or the result of an op");
}

DType OpCheck::tensor(const Value& value) const {
  not_a_weight(value);
  if (value.format != WeightFormat::Dense || (value.dtype != DType::Float16 && value.dtype != DType::Float32))
    refuse("'", value.name, "' is ", describe(value), ", expected float16 or float32");
  if (!facts_.tensor_dtype) facts_.tensor_dtype = value.dtype;
  if (value.dtype != *facts_.tensor_dtype)
    refuse("'", value.name, "' is ", describe(value), ", the graph's other tensors are ",
           name_of(*facts_.tensor_dtype));
  return value.dtype;
}

void OpCheck::length(const Value& value) const {
  if (value.kind != ValueKind::Input || value.dtype != DType::Int32 || value.shape != Shape{1})
    refuse("'", value.name, "' is ", describe(value), ", expected an input int32 [1]");
}

void OpCheck::states_after(const Value& state, int64_t tokens) const {
  const size_t states = op_.outputs.size() - 1;
  if (states != 1 && states != size_t(tokens))
    refuse("has ", op_.outputs.size(), " outputs, expected 2, or ", tokens + 1, " with a state after each of ", tokens,
           " tokens");
  for (size_t i = 1; i <= states; ++i) expect(output(i), state.dtype, state.shape);
}

void OpCheck::positions(const Value& value, int64_t tokens) const {
  if (value.kind != ValueKind::Input || value.dtype != DType::Int32 || value.shape != Shape{1, tokens})
    refuse("'", value.name, "' is ", describe(value), ", expected an input int32 [1, ", tokens, "]");
}

void OpCheck::context_length(const Value& value, int64_t length) const {
  if (!facts_.context) facts_.context = length;
  if (length != *facts_.context)
    refuse("'", value.name, "' is ", describe(value), ", its context length is ", length, " and elsewhere ",
           *facts_.context);
}

const Op* OpCheck::producer_of(size_t i) const {
  const uint32_t producer = facts_.producer[op_.inputs[i]];
  return producer == kNoValue ? nullptr : &facts_.graph.ops[producer];
}

bool OpCheck::is_updated_state(size_t input) const {
  const Op* op = producer_of(input);
  if (op == nullptr) return false;
  const uint32_t id = op_.inputs[input];
  return std::ranges::any_of(states_of(*op), [&](const StateOperand& s) { return op->outputs[s.output] == id; });
}

std::string describe(const Value& value) {
  const char* kind = value.kind == ValueKind::State ? "state " : value.kind == ValueKind::Input ? "input " : "";
  const std::string format = value.format == WeightFormat::Dense ? "" : concat(name_of(value.format), " ");
  return concat(kind, format, name_of(value.dtype), " ", to_string(value.shape));
}

}  // namespace tcim_lite
