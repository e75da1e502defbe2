#include "layers/faults/bits.h"

#include <algorithm>

#include "base/error.h"
#include "runtime/buffer.h"
#include "runtime/devices.h"

namespace tcim_lite::layers {
namespace {

struct Bit {
  uint64_t byte;
  int bit;
};

// Nothing for a byte outside of the tensor.
std::optional<Bit> choose(const FaultRule& rule, uint64_t count, uint64_t bytes) {
  if (bytes == 0 || rule.byte.value_or(0) >= bytes) return std::nullopt;
  const uint64_t drawn = draw(rule.seed, count);
  return Bit{rule.byte.value_or(drawn % bytes), rule.bit.value_or(int(drawn >> 61))};
}

std::string sentence(const FaultRule& rule, const std::optional<Bit>& bit, const char* what, uint64_t bytes) {
  if (bit) return concat("bit ", bit->bit, " of byte ", bit->byte, " of ", what, " '", rule.tensor, "' was flipped");
  return concat(what, " '", rule.tensor, "' has ", bytes, " bytes and no byte ", rule.byte.value_or(0),
                "; nothing was flipped");
}

// The index of the input or output of that name, as compiled.
std::optional<size_t> port_index(const Program& program, const FaultRule& rule) {
  const Graph& graph = program.content().graph();
  const std::vector<uint32_t>& ports = rule.bit_in == BitIn::Input ? graph.inputs : graph.outputs;
  for (size_t i = 0; i < ports.size(); ++i) {
    if (graph.values[ports[i]].name == rule.tensor) return i;
  }
  return std::nullopt;
}

struct PlacedWeight {
  std::shared_ptr<const Weight> weight;
  int device = 0;
};

// On the device of the rule, or on the first that has it.
PlacedWeight find_weight(const Program& program, const FaultRule& rule) {
  const auto& entries = program.content().weights;
  for (size_t rank = 0; rank < program.devices().size(); ++rank) {
    const int device = program.devices()[rank]->id();
    if (rule.device && *rule.device != device) continue;
    const Weights& weights = program.weights()[rank];
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] != nullptr && entries[i].name == rule.tensor) return {weights[i], device};
    }
  }
  return {};
}

}  // namespace

bool has_tensor(const Program& program, const FaultRule& rule) {
  return rule.bit_in == BitIn::Weight ? find_weight(program, rule).weight != nullptr
                                      : port_index(program, rule).has_value();
}

std::string flip_bit(const FaultRule& rule, uint64_t count, Program& program, const RunEvent* run,
                     FaultyDevices& devices) {
  if (rule.bit_in == BitIn::Weight) {
    const PlacedWeight found = find_weight(program, rule);
    const uint64_t bytes = found.weight->device_bytes();
    const std::optional<Bit> bit = choose(rule, count, bytes);
    if (bit) {
      if (!found.weight->flip_bit(bit->byte, bit->bit))
        return concat("weight '", rule.tensor, "' is in memory that cannot be written; nothing was flipped");
      devices.remember_flip(found.device, found.weight, bit->byte, bit->bit);
    }
    return sentence(rule, bit, "weight", bytes);
  }
  const bool is_input = rule.bit_in == BitIn::Input;
  const size_t index = *port_index(program, rule);
  const TensorFacts& facts = is_input ? run->inputs[index] : run->outputs[index];
  Buffer& memory = *run->memory[is_input ? index : run->inputs.size() + index];
  const std::optional<Bit> bit = choose(rule, count, facts.span_bytes);
  if (bit) {
    std::byte value;
    memory.read(facts.offset + bit->byte, 1, &value);
    value ^= std::byte(1 << bit->bit);
    memory.write(facts.offset + bit->byte, 1, &value);
  }
  return sentence(rule, bit, is_input ? "input" : "output", facts.span_bytes);
}

}  // namespace tcim_lite::layers
