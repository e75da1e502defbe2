#include "graph/cost.h"

#include <algorithm>
#include <set>

#include "graph/ops/op_definition.h"

namespace tcim_lite {
namespace {

uint64_t stored_bytes(const Value& weight) {
  if (weight.format == WeightFormat::Dense)
    return uint64_t(num_elements(weight.shape)) * uint64_t(size_of(weight.dtype));
  const size_t rank = weight.shape.size();
  const int64_t experts = rank == 3 ? weight.shape[0] : 1;
  return uint64_t(experts * packed_bytes(weight.format, weight.shape[rank - 2], weight.shape[rank - 1]));
}

uint64_t tensor_bytes(const Value& value) {
  return uint64_t(num_elements(value.shape)) * uint64_t(size_of(value.dtype));
}

// Of a weight [E, ..] the share of the experts that are chosen.
uint64_t read_bytes_of(const Graph& graph, const Op& op, const OpDefinition& definition, const Value& weight) {
  const uint64_t bytes = stored_bytes(weight);
  if (definition.expert_ids == kNoOperand) return bytes;
  const uint64_t experts = uint64_t(weight.shape[0]);
  const uint64_t choices = uint64_t(num_elements(graph.values[op.inputs[definition.expert_ids]].shape));
  return bytes / experts * std::min(experts, choices);
}

}  // namespace

int64_t OpCost::rows_seen(size_t slot, int64_t valid) const {
  const int64_t window = caches[slot].window;
  return (window == 0 ? valid : std::min(valid, window - 1)) + tokens;
}

uint64_t OpCost::pairs(size_t slot, int64_t valid) const {
  const int64_t window = caches[slot].window;
  uint64_t pairs = 0;
  for (int64_t token = 0; token < tokens; ++token) {
    const int64_t seen = valid + token + 1;
    pairs += uint64_t(window == 0 ? seen : std::min(seen, window));
  }
  return pairs;
}

uint64_t GraphCost::weight_bytes() const {
  uint64_t bytes = 0;
  for (const OpCost& op : ops) bytes += op.weight_bytes;
  return bytes;
}

uint64_t GraphCost::read_bytes(int64_t valid) const {
  uint64_t bytes = weight_bytes() + mask_bytes;
  for (const OpCost& op : ops) {
    for (size_t slot = 0; slot < op.caches.size(); ++slot)
      bytes += op.caches[slot].row_bytes * uint64_t(op.rows_seen(slot, valid));
  }
  return bytes;
}

uint64_t GraphCost::operations(WorkKind work) const {
  uint64_t operations = 0;
  for (const OpCost& op : ops) operations += op.work == work ? op.operations : 0;
  return operations;
}

bool GraphCost::quantized() const {
  return std::any_of(ops.begin(), ops.end(), [](const OpCost& op) { return op.quantized; });
}

GraphCost cost_of(const Graph& graph) {
  GraphCost cost;
  std::set<uint32_t> weights, masks;
  for (const Op& op : graph.ops) {
    const OpDefinition& definition = definition_of(op.kind);
    OpCost& made = cost.ops.emplace_back();
    made.op = op.kind;
    made.is_view = definition.cut == Cut::Follows;
    if (definition.cost != nullptr) definition.cost(graph, op, made);
    for (const uint32_t input : op.inputs) {
      const Value& value = graph.values[input];
      if (value.kind != ValueKind::Weight || definition.reads_weights_by_row || !weights.insert(value.weight).second)
        continue;
      made.weight_bytes += read_bytes_of(graph, op, definition, value);
    }
    for (CacheReads& slot : made.caches) {
      for (uint32_t* length : {&slot.valid, &slot.current}) {
        const auto input = std::find(graph.inputs.begin(), graph.inputs.end(), *length);
        *length = input == graph.inputs.end() ? kNoValue : uint32_t(input - graph.inputs.begin());
      }
      if (slot.mask != kNoValue && masks.insert(slot.mask).second)
        cost.mask_bytes += tensor_bytes(graph.values[slot.mask]);
    }
    if (made.work != WorkKind::Attention || cost.slots != 0) continue;
    cost.slots = int64_t(made.caches.size());
    cost.tokens = made.tokens;
  }
  return cost;
}

}  // namespace tcim_lite
