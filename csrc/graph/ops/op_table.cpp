#include <array>

#include "graph/ops/op_definition.h"

namespace tcim_lite {

namespace ops {
#define TCIM_LITE_OP(name, version) extern const OpDefinition name;
#include "graph/ops.def"
}  // namespace ops

namespace {

struct Entry {
  std::string_view name;
  uint16_t version;
  const OpDefinition* definition;
};

constexpr auto kOps = std::to_array<Entry>({
#define TCIM_LITE_OP(name, version) {#name, version, &ops::name},
#include "graph/ops.def"
});

}  // namespace

std::string_view name_of(OpKind kind) { return kOps[size_t(kind)].name; }

uint16_t version_of(OpKind kind) { return kOps[size_t(kind)].version; }

const OpDefinition& definition_of(OpKind kind) { return *kOps[size_t(kind)].definition; }

size_t num_ops() { return kOps.size(); }

std::optional<OpKind> find_op(std::string_view name) {
  for (size_t i = 0; i < kOps.size(); ++i) {
    if (kOps[i].name == name) return OpKind(i);
  }
  return std::nullopt;
}

std::vector<StateOperand> states_of(const Op& op) {
  const OpDefinition& definition = definition_of(op.kind);
  return definition.states == nullptr ? std::vector<StateOperand>{} : definition.states(op);
}

std::vector<bool> carried_values(const Graph& graph) {
  std::vector<bool> is_carried(graph.values.size());
  for (auto it = graph.ops.rbegin(); it != graph.ops.rend(); ++it) {  // clang 14 cannot take libstdc++'s views
    const Op& op = *it;
    const size_t carried = definition_of(op.kind).carried;
    if (carried < op.inputs.size()) {
      is_carried[op.inputs[carried]] = true;
      for (size_t i = 1; i < op.outputs.size(); ++i) is_carried[op.outputs[i]] = true;
    }
    if (op.kind != OpKind::Concat || !is_carried[op.outputs[0]]) continue;
    for (const uint32_t id : op.inputs) is_carried[id] = true;
  }
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::StridedSlice && is_carried[op.inputs[0]]) is_carried[op.outputs[0]] = true;
  }
  return is_carried;
}

std::string_view name_of(Cut cut) {
  static constexpr std::string_view kNames[] = {"no", "columns", "heads", "rows", "as its operand"};
  return kNames[size_t(cut)];
}

}  // namespace tcim_lite
