// What the rules of the ops are written with. One op under check; a failure names the op and the value at fault.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "graph/graph.h"

namespace tcim_lite {

// What the ops of a graph must agree on, and who produced what; fed with the ops in order.
struct GraphFacts {
  explicit GraphFacts(const Graph& graph) : graph(graph), producer(graph.values.size(), kNoValue) {}

  const Graph& graph;
  std::vector<uint32_t> producer;     // op of each intermediate
  std::optional<DType> tensor_dtype;  // T
  std::optional<int64_t> context;     // C
};

// "float16 [1, 4, 64]", with kind and format where they are unusual.
std::string describe(const Value& value);

class OpCheck {
 public:
  OpCheck(GraphFacts& facts, uint32_t index) : facts_(facts), index_(index), op_(facts.graph.ops[index]) {}

  const Op& op() const { return op_; }
  size_t num_inputs() const { return op_.inputs.size(); }
  const Value& input(size_t i) const { return facts_.graph.values[op_.inputs[i]]; }
  const Value& output(size_t i) const { return facts_.graph.values[op_.outputs[i]]; }

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorCode::Format, "op ", index_, " (", name_of(op_.kind), "): ", parts..., "; compile the model again");
  }

  void arity(size_t min_inputs, size_t max_inputs, size_t outputs) const;
  // Input 0 of an op whose arity depends on it.
  const Value& first_input() const;
  // The number of slots B of a [B, T, heads, D] tensor, with `per_slot` inputs each after the first `fixed`.
  size_t slots(const Value& value, size_t fixed, size_t per_slot) const;

  void attributes(std::initializer_list<std::string_view> known) const;
  bool has_attribute(std::string_view key) const { return op_.find(key) != nullptr; }
  double positive_number(std::string_view key, double fallback) const;
  int64_t whole_number(std::string_view key) const;
  // Attribute "axis", one of those of `value`.
  size_t axis_of(const Value& value) const;
  // A string attribute that is there and is one of `known`.
  void text_in(std::string_view key, std::initializer_list<std::string_view> known) const;

  void rank(const Value& value, size_t expected) const;
  void expect(const Value& value, DType dtype, const Shape& shape) const;
  // A constant: backends read it when the graph is loaded.
  void constant(const Value& value, DType dtype, const Shape& shape) const;
  // T: float16 or float32, one per graph. Not a weight: those are constants of their ops, not activations.
  DType tensor(const Value& value) const;
  void not_a_weight(const Value& value) const;
  // valid or current: the runtime reads and checks it before the run.
  void length(const Value& value) const;
  // Outputs from 1 on are like `state`: one after the last of `tokens` tokens, or one after each.
  void states_after(const Value& state, int64_t tokens) const;
  // Where each of `tokens` tokens of a slot is in the text.
  void positions(const Value& value, int64_t tokens) const;
  // One C holds for the whole graph.
  void context_length(const Value& value, int64_t length) const;
  const Value& value(uint32_t id) const { return facts_.graph.values[id]; }
  // The op that makes input `i`; null for what no op makes.
  const Op* producer_of(size_t i) const;
  // Whether `input` is what an op left of a state it updated.
  bool is_updated_state(size_t input) const;

  static Shape with_last(Shape shape, int64_t last) {
    shape.back() = last;
    return shape;
  }

 private:
  GraphFacts& facts_;
  uint32_t index_;
  const Op& op_;
};

}  // namespace tcim_lite
