// The rules of docs/hmm-format.md section 5 that hold for every op: names, ids, order, kinds.
#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "base/error.h"
#include "graph/graph.h"
#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite {
namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 40;
constexpr int64_t kMaxTensorBytes = int64_t{1} << 48;

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  fail(ErrorCode::Format, parts...);
}

std::string_view kind_name(ValueKind kind) {
  static constexpr std::string_view kNames[] = {"input", "state", "weight", "intermediate"};
  return kNames[size_t(kind)];
}

void check_value(const Value& value) {
  const Shape& shape = value.shape;
  if (value.name.empty()) refuse("a value has no name");
  if (shape.empty() || shape.size() > 8)
    refuse("value '", value.name, "' has rank ", shape.size(), ", expected 1 to 8");
  int64_t bytes = size_of(value.dtype);
  for (int64_t extent : shape) {
    if (extent < 1 || extent > kMaxExtent)
      refuse("value '", value.name, "' has shape ", to_string(shape), ", extents are 1 to 2^40");
    if (bytes > kMaxTensorBytes / extent)
      refuse("value '", value.name, "' has shape ", to_string(shape), ", more than 2^48 bytes");
    bytes *= extent;
  }
  if ((value.kind == ValueKind::Weight) != (value.weight != kNoValue))
    refuse("value '", value.name, "' is of kind ", kind_name(value.kind), " and weight is ",
           value.weight == kNoValue ? "none" : std::to_string(value.weight), "; only weights have one");
  if (value.format == WeightFormat::Dense) return;
  if (value.kind != ValueKind::Weight)
    refuse("value '", value.name, "' is of kind ", kind_name(value.kind), " and has format ", name_of(value.format),
           ", expected dense");
  const WeightLayout layout = layout_of(value.format);
  if (value.dtype != layout.dtype)
    refuse("value '", value.name, "' has format ", layout.name, " and dtype ", name_of(value.dtype), ", expected ",
           name_of(layout.dtype));
  if (shape.size() != 2 && shape.size() != 3)
    refuse("value '", value.name, "' has shape ", to_string(shape), ", expected [N, K] or [E, N, K]");
  if (is_quantized(value.format) && shape.back() % kGroup != 0)
    refuse("value '", value.name, "' has shape ", to_string(shape), ", expected K to be a multiple of ", kGroup);
}

template <typename Ids>
void check_ids(const Graph& graph, const Ids& ids, const std::string& what) {
  for (uint32_t id : ids) {
    if (id >= graph.values.size()) refuse(what, " names value ", id, ", there are ", graph.values.size());
  }
}

void check_interface(const Graph& graph, const std::vector<bool>& ready, const std::vector<uint32_t>& producer) {
  check_ids(graph, graph.inputs, "the list of inputs");
  check_ids(graph, graph.outputs, "the list of outputs");
  std::vector<bool> is_input(graph.values.size()), is_output(graph.values.size());
  for (uint32_t id : graph.inputs) {
    if (is_input[id]) refuse("'", graph.values[id].name, "': a value is listed twice among the inputs or outputs");
    is_input[id] = true;
  }
  for (size_t id = 0; id < graph.values.size(); ++id) {
    const Value& value = graph.values[id];
    if ((value.kind == ValueKind::Input || value.kind == ValueKind::State) != is_input[id])
      refuse("value '", value.name, "' is of kind ", kind_name(value.kind),
             "; exactly the inputs and states are listed as inputs");
  }
  for (uint32_t id : graph.outputs) {
    const Value& value = graph.values[id];
    if (is_output[id]) refuse("'", value.name, "': a value is listed twice among the inputs or outputs");
    is_output[id] = true;
    if (value.kind != ValueKind::Intermediate)
      refuse("output '", value.name, "' is of kind ", kind_name(value.kind), ", expected intermediate");
    if (!ready[id]) refuse("output '", value.name, "' is produced by no op");
    const Op& op = graph.ops[producer[id]];
    for (const StateOperand& state : states_of(op)) {
      if (op.outputs[state.output] == id)
        refuse("output '", value.name, "' is a state, which is updated in place and is no output");
    }
  }
  if (graph.live_rows == kNoValue) return;
  check_ids(graph, std::initializer_list<uint32_t>{graph.live_rows}, "live_rows");
  const Value& rows = graph.values[graph.live_rows];
  if (rows.kind != ValueKind::Input || rows.dtype != DType::Int32 || rows.shape != Shape{1})
    refuse("live_rows is '", rows.name, "', ", describe(rows), "; expected input int32 [1]");
}

}  // namespace

void validate(const Graph& graph) {
  std::unordered_set<std::string_view> names;
  std::vector<bool> ready, updated(graph.values.size());
  for (const Value& value : graph.values) {
    check_value(value);
    if (!names.insert(value.name).second) refuse("two values have the name '", value.name, "'");
    ready.push_back(value.kind != ValueKind::Intermediate);
  }

  GraphFacts facts(graph);
  for (uint32_t index = 0; index < graph.ops.size(); ++index) {
    const Op& op = graph.ops[index];
    const std::string what = concat("op ", index, " (", name_of(op.kind), ")");
    check_ids(graph, op.inputs, what);
    check_ids(graph, op.outputs, what);
    const std::vector<StateOperand> states = states_of(op);
    for (size_t operand = 0; operand < op.inputs.size(); ++operand) {
      const uint32_t id = op.inputs[operand];
      const Value& value = graph.values[id];
      if (!ready[id]) refuse(what, " reads '", value.name, "' before it is produced");
      if (value.kind != ValueKind::State) continue;
      if (std::ranges::none_of(states, [&](const StateOperand& state) { return state.input == operand; }))
        refuse(what, " reads the state '", value.name, "' as operand ", operand, ", which it does not update");
      if (updated[id]) refuse(what, " updates the state '", value.name, "', which is already updated");
      updated[id] = true;
    }
    definition_of(op.kind).check(OpCheck(facts, index));
    for (uint32_t id : op.outputs) {
      const Value& value = graph.values[id];
      if (value.kind != ValueKind::Intermediate)
        refuse(what, " writes '", value.name, "', which is of kind ", kind_name(value.kind));
      if (ready[id]) refuse(what, " writes '", value.name, "', which is already produced");
      ready[id] = true;
      facts.producer[id] = index;
    }
  }
  check_interface(graph, ready, facts.producer);
}

}  // namespace tcim_lite
