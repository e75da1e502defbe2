#include "graph/shape_rules.h"

#include <cmath>
#include <initializer_list>

#include "base/error.h"

namespace tcim_lite {
namespace {

// One op under check; fails with the op and the value at fault.
class Checker {
 public:
  Checker(ShapeContext& context, uint32_t index) : context_(context), index_(index), op_(context.graph.ops[index]) {}

  void check() {
    switch (op_.kind) {
      case OpKind::Linear:
        return linear();
      case OpKind::RMSNorm:
        return rms_norm();
      case OpKind::Rope:
        return rope();
      case OpKind::KVcache:
        return kv_cache();
      case OpKind::FlashAttention:
        return flash_attention();
      case OpKind::BatchGather:
        return batch_gather();
      case OpKind::SiluMul:
        return silu_mul();
      case OpKind::Add:
        return add();
      case OpKind::Slice:
        return slice();
      case OpKind::Reshape:
        return reshape();
      case OpKind::AllGather:
        return all_gather();
    }
  }

 private:
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorCode::Format, "op ", index_, " (", name_of(op_.kind), "): ", parts..., "; compile the model again");
  }

  const Value& input(size_t i) const { return context_.graph.values[op_.inputs[i]]; }
  const Value& output(size_t i) const { return context_.graph.values[op_.outputs[i]]; }

  void arity(size_t min_inputs, size_t max_inputs, size_t outputs) const {
    if (op_.inputs.size() < min_inputs || op_.inputs.size() > max_inputs)
      refuse("has ", op_.inputs.size(), " inputs, expected ", min_inputs,
             max_inputs > min_inputs ? concat(" to ", max_inputs) : "");
    if (op_.outputs.size() != outputs) refuse("has ", op_.outputs.size(), " outputs, expected ", outputs);
  }

  void attributes(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : op_.attributes) {
      bool found = false;
      for (std::string_view name : known) found = found || key == name;
      if (!found) refuse("does not know the attribute '", key, "'");
    }
  }

  const AttributeValue* find(std::string_view key) const {
    for (const auto& [name, value] : op_.attributes) {
      if (name == key) return &value;
    }
    return nullptr;
  }

  double positive_number(std::string_view key, double fallback) const {
    const AttributeValue* value = find(key);
    if (value == nullptr) return fallback;
    if (std::holds_alternative<std::string>(*value)) refuse("attribute '", key, "' is a string, expected a number");
    const double number = op_.attribute(key, fallback);
    if (!std::isfinite(number) || number <= 0) refuse("attribute '", key, "' is ", number, ", expected more than 0");
    return number;
  }

  int64_t whole_number(std::string_view key) const {
    const AttributeValue* value = find(key);
    if (value == nullptr) refuse("attribute '", key, "' is missing");
    if (!std::holds_alternative<int64_t>(*value)) refuse("attribute '", key, "' is not a whole number");
    return std::get<int64_t>(*value);
  }

  void rank(const Value& value, size_t expected) const {
    if (value.shape.size() != expected) refuse("'", value.name, "' is ", describe(value), ", expected rank ", expected);
  }

  void expect(const Value& value, DType dtype, const Shape& shape) const {
    if (value.dtype != dtype || value.shape != shape || value.format != WeightFormat::Dense)
      refuse("'", value.name, "' is ", describe(value), ", expected ", name_of(dtype), " ", to_string(shape));
  }

  // A constant: backends read it when the graph is loaded.
  void constant(const Value& value, DType dtype, const Shape& shape) const {
    if (value.kind != ValueKind::Weight) refuse("'", value.name, "' is ", describe(value), ", expected a weight");
    expect(value, dtype, shape);
  }

  // T: float16 or float32, one per graph. Not a weight: those are constants of their ops, not activations.
  DType tensor(const Value& value) const {
    if (value.kind == ValueKind::Weight)
      refuse("'", value.name, "' is a weight, expected an input or the result of an op");
    if (value.format != WeightFormat::Dense || (value.dtype != DType::Float16 && value.dtype != DType::Float32))
      refuse("'", value.name, "' is ", describe(value), ", expected float16 or float32");
    if (!context_.tensor_dtype) context_.tensor_dtype = value.dtype;
    if (value.dtype != *context_.tensor_dtype)
      refuse("'", value.name, "' is ", describe(value), ", the graph's other tensors are ",
             name_of(*context_.tensor_dtype));
    return value.dtype;
  }

  void context_length(const Value& value, int64_t length) const {
    if (!context_.context) context_.context = length;
    if (length != *context_.context)
      refuse("'", value.name, "' is ", describe(value), ", its context length is ", length, " and elsewhere ",
             *context_.context);
  }

  // valid or current: the runtime reads and checks it before the run.
  void length(const Value& value) const {
    if (value.kind != ValueKind::Input || value.dtype != DType::Int32 || value.shape != Shape{1})
      refuse("'", value.name, "' is ", describe(value), ", expected an input int32 [1]");
  }

  // The number of slots B of a [B, T, heads, D] tensor, with `per_slot` inputs each after the first `fixed`.
  size_t slots(const Value& value, size_t fixed, size_t per_slot) const {
    rank(value, 4);
    const auto wanted = uint64_t(value.shape[0]);
    if (op_.inputs.size() < fixed || (op_.inputs.size() - fixed) % per_slot != 0 ||
        (op_.inputs.size() - fixed) / per_slot != wanted)
      refuse("has ", op_.inputs.size(), " inputs, expected ", fixed, " and ", per_slot, " for each of ", wanted,
             " slots");
    return size_t(wanted);
  }

  static Shape with_last(Shape shape, int64_t last) {
    shape.back() = last;
    return shape;
  }

  void linear() const {
    arity(2, 3, 1);
    attributes({});
    const Value &x = input(0), &weight = input(1);
    const DType dtype = tensor(x);
    if (weight.kind != ValueKind::Weight || weight.format == WeightFormat::Dense)
      refuse("'", weight.name, "' is ", describe(weight), ", expected a weight in a packed format");
    if (weight.shape[1] != x.shape.back())
      refuse("'", x.name, "' is ", describe(x), ", the weight '", weight.name, "' is ", describe(weight),
             ": the last extents must agree");
    if (op_.inputs.size() == 3) constant(input(2), DType::Float32, {weight.shape[0]});
    expect(output(0), dtype, with_last(x.shape, weight.shape[0]));
  }

  void rms_norm() const {
    arity(2, 2, 1);
    attributes({"epsilon"});
    const DType dtype = tensor(input(0));
    constant(input(1), DType::Float32, {input(0).shape.back()});
    if (find("epsilon") == nullptr) refuse("attribute 'epsilon' is missing");
    positive_number("epsilon", 0);
    expect(output(0), dtype, input(0).shape);
  }

  void rope() const {
    arity(4, SIZE_MAX, 1);
    attributes({});
    const Value& x = input(0);
    const DType dtype = tensor(x);
    const size_t num_slots = slots(x, 3, 1);
    if (x.shape[3] % 2 != 0) refuse("'", x.name, "' is ", describe(x), ", expected an even last extent");
    rank(input(1), 2);
    context_length(input(1), input(1).shape[0]);
    for (size_t i : {1, 2}) constant(input(i), dtype, {input(1).shape[0], x.shape[3] / 2});
    for (size_t slot = 0; slot < num_slots; ++slot) length(input(3 + slot));
    expect(output(0), dtype, x.shape);
  }

  void kv_cache() const {
    const Value& fresh = input_or_refuse();
    const DType dtype = tensor(fresh);
    attributes({});
    if (fresh.kind == ValueKind::State) refuse("'", fresh.name, "' is ", describe(fresh), ", expected new rows");
    const size_t num_slots = slots(fresh, 1, 3);
    arity(1 + 3 * num_slots, 1 + 3 * num_slots, num_slots);
    for (size_t slot = 0; slot < num_slots; ++slot) {
      const Value& cache = input(1 + 3 * slot);
      if (cache.kind != ValueKind::State) refuse("'", cache.name, "' is ", describe(cache), ", expected a state");
      rank(cache, 4);
      context_length(cache, cache.shape[2]);
      expect(cache, dtype, {1, fresh.shape[2], cache.shape[2], fresh.shape[3]});
      length(input(2 + 3 * slot));
      length(input(3 + 3 * slot));
      expect(output(slot), dtype, cache.shape);
    }
  }

  void flash_attention() const {
    const Value& q = input_or_refuse();
    const DType dtype = tensor(q);
    attributes({"scale"});
    positive_number("scale", 1);
    const size_t num_slots = slots(q, 1, 4);
    arity(1 + 4 * num_slots, 1 + 4 * num_slots, 1);
    rank(input(1), 4);
    const int64_t kv_heads = input(1).shape[1];
    if (q.shape[2] % kv_heads != 0)
      refuse("'", q.name, "' has ", q.shape[2], " heads, expected a multiple of the ", kv_heads, " of '", input(1).name,
             "'");
    for (size_t slot = 0; slot < num_slots; ++slot) {
      for (size_t i : {1 + 4 * slot, 2 + 4 * slot}) {
        const Value& cache = input(i);
        const uint32_t producer = context_.producer[op_.inputs[i]];
        if (producer == kNoValue || context_.graph.ops[producer].kind != OpKind::KVcache)
          refuse("'", cache.name, "' is ", describe(cache), ", expected an output of KVcache");
        context_length(cache, cache.shape[2]);
        expect(cache, dtype, {1, kv_heads, cache.shape[2], q.shape[3]});
      }
      length(input(3 + 4 * slot));
      length(input(4 + 4 * slot));
    }
    expect(output(0), dtype, {q.shape[0], q.shape[1], q.shape[2] * q.shape[3]});
  }

  void batch_gather() const {
    arity(2, 2, 1);
    attributes({});
    const Value& x = input(0);
    const DType dtype = tensor(x);
    rank(x, 3);
    if (x.shape[0] != 1) refuse("'", x.name, "' is ", describe(x), ", expected one slot");
    length(input(1));
    expect(output(0), dtype, {1, 1, x.shape[2]});
  }

  void silu_mul() const {
    arity(1, 1, 1);
    attributes({});
    const Value& x = input(0);
    const DType dtype = tensor(x);
    if (x.shape.back() % (2 * kBlockOutputs) != 0)
      refuse("'", x.name, "' is ", describe(x), ", expected a last extent that is a multiple of ", 2 * kBlockOutputs);
    expect(output(0), dtype, with_last(x.shape, x.shape.back() / 2));
  }

  void add() const {
    arity(2, 2, 1);
    attributes({});
    const DType dtype = tensor(input(0));
    tensor(input(1));
    expect(input(1), dtype, input(0).shape);
    expect(output(0), dtype, input(0).shape);
  }

  void slice() const {
    arity(1, 1, 1);
    attributes({"start", "stop"});
    const Value& x = input(0);
    const DType dtype = tensor(x);
    const int64_t start = whole_number("start"), stop = whole_number("stop");
    if (start < 0 || stop <= start || stop > x.shape.back())
      refuse("start ", start, " and stop ", stop, " are not a range of '", x.name, "', ", describe(x));
    expect(output(0), dtype, with_last(x.shape, stop - start));
  }

  void reshape() const {
    arity(1, 1, 1);
    attributes({});
    const Value &x = input(0), &y = output(0);
    if (x.kind == ValueKind::Weight) refuse("'", x.name, "' is a weight, expected an input or the result of an op");
    if (x.dtype != y.dtype || num_elements(x.shape) != num_elements(y.shape))
      refuse("'", x.name, "' is ", describe(x), " and '", y.name, "' is ", describe(y),
             ", expected the same dtype and number of elements");
  }

  void all_gather() const {
    arity(1, 1, 1);
    attributes({"offset"});
    const Value &x = input(0), &y = output(0);
    const DType dtype = tensor(x);
    const int64_t offset = whole_number("offset"), width = y.shape.back();
    expect(y, dtype, with_last(x.shape, width));
    if (offset < 0 || x.shape.back() > width || offset > width - x.shape.back())
      refuse("'", x.name, "', ", describe(x), ", does not fit columns ", offset, " onwards of '", y.name, "', ",
             describe(y));
  }

  const Value& input_or_refuse() const {
    if (op_.inputs.empty()) refuse("has 0 inputs, expected at least 1");
    return input(0);
  }

  ShapeContext& context_;
  uint32_t index_;
  const Op& op_;
};

}  // namespace

void check_shapes(ShapeContext& context, uint32_t op_index) { Checker(context, op_index).check(); }

std::string describe(const Value& value) {
  const char* kind = value.kind == ValueKind::State ? "state " : value.kind == ValueKind::Input ? "input " : "";
  const std::string format = value.format == WeightFormat::Dense ? "" : concat(name_of(value.format), " ");
  return concat(kind, format, name_of(value.dtype), " ", to_string(value.shape));
}

}  // namespace tcim_lite
