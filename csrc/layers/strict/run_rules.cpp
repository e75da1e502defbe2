#include "layers/strict/run_rules.h"

#include <algorithm>
#include <functional>

#include "base/error.h"

namespace tcim_lite::layers {
namespace {

// Of one cache in one round; `known` if both are there.
struct Lengths {
  explicit Lengths(const RunEvent& event, const CachePorts& ports) {
    if (!ports.valid || !ports.current || !event.lengths[*ports.valid] || !event.lengths[*ports.current]) return;
    known = true;
    valid = *event.lengths[*ports.valid];
    current = *event.lengths[*ports.current];
  }
  bool in_range(const CachePorts& ports) const { return valid >= 0 && current >= 1 && current <= ports.tokens; }

  bool known = false;
  int64_t valid = 0, current = 0;
};

// The first kind of fault of this cache, if any.
void check_cache(Shadow& shadow, const ModuleShadow& module, const CachePorts& ports, const Lengths& lengths,
                 Found& found) {
  const std::string& valid_name = module.inputs[*ports.valid].name;
  if (!lengths.in_range(ports)) {
    found.emplace_back(
        "S-201", concat("'", valid_name, "' is ", lengths.valid, ", '", module.inputs[*ports.current].name, "' is ",
                        lengths.current, ", and ", module.file, " takes ", ports.tokens, " tokens per run."));
    return;
  }
  if (module.batch == 1 && lengths.valid + lengths.current > ports.context) {
    found.emplace_back(
        "S-202", concat(lengths.valid, " + ", lengths.current, " passes ", ports.context, " in ", module.file, "."));
    return;
  }
  const CacheRows* const rows = shadow.rows(module, ports);
  if (rows == nullptr) return;
  const auto end = rows->begin() + std::min(lengths.valid, ports.context);
  const auto missing = std::find(rows->begin(), end, uint64_t{0});
  const std::string& cache = module.inputs[ports.cache].name;
  if (missing != end) {
    found.emplace_back("S-401", concat("'", valid_name, "' is ", lengths.valid, ", but row ", missing - rows->begin(),
                                       " of '", cache, "' (", module.file, ") was never written."));
    return;
  }
  const auto newer = std::adjacent_find(rows->begin(), end, std::greater<>());
  if (newer != end) {
    const auto row = newer - rows->begin();
    found.emplace_back("S-204", concat("'", valid_name, "' is ", lengths.valid, ", but row ", row + 1, " of '", cache,
                                       "' (", module.file, ") is older than row ", row, "."));
  }
}

// Whether the positions of a slot's tokens are those that its lengths say.
void check_positions(const RunEvent& event, const ModuleShadow& module, const CachePorts& ports, const Lengths& lengths,
                     Found& found) {
  if (!ports.positions) return;
  const std::vector<int32_t>& positions = event.positions[*ports.positions];
  for (int64_t token = 0; token < lengths.current; ++token) {
    if (positions[size_t(token)] == lengths.valid + token) continue;
    found.emplace_back("S-205", concat("'", module.inputs[*ports.positions].name, "' says ", positions[size_t(token)],
                                       " for token ", token, ", but '", module.inputs[*ports.valid].name, "' is ",
                                       lengths.valid, " (", module.file, ")."));
    return;
  }
}

// Whether positions along three axes can be those of text and images: time does not run backwards, and no position is
// beyond the token's number, because an image has at least as many tokens as it is high or wide.
void check_axes(const RunEvent& event, const ModuleShadow& module, const CachePorts& ports, const Lengths& lengths,
                Found& found) {
  for (const size_t port : ports.axes) {
    const std::vector<int32_t>& all = event.positions[port];
    for (size_t row = 0; row < all.size(); row += size_t(ports.tokens)) {
      const bool is_time = row == 0 && port == ports.axes.front();
      int32_t time = 0;
      for (int64_t token = 0; token < lengths.current; ++token) {
        const int32_t position = all[row + size_t(token)], earliest = is_time ? time : 0;
        time = position;
        const std::string says = concat("'", module.inputs[port].name, "' says ", position, " for token ", token);
        if (position < earliest) {
          found.emplace_back(
              "S-206", concat(says, ", ", earliest == 0 ? "" : concat("behind ", earliest, " for the one before it, "),
                              "in ", module.file, "."));
          return;
        }
        if (position <= lengths.valid + token) continue;
        found.emplace_back("S-206", concat(says, ", but '", module.inputs[*ports.valid].name, "' is ", lengths.valid,
                                           " (", module.file, ")."));
        return;
      }
    }
  }
}

// Whether a slot of several takes no part in a run: its mask hides its token from linear attention.
bool is_idle(const RunEvent& event, const ModuleShadow& module, const CachePorts& ports) {
  return module.batch > 1 && ports.mask &&
         std::ranges::all_of(event.linear_masks[*ports.mask], [](float value) { return value == 0; });
}

// Whether the mask of linear attention lets through the tokens that the length says, and no padding.
void check_mask(const RunEvent& event, const ModuleShadow& module, const CachePorts& ports, const Lengths& lengths,
                Found& found) {
  if (!ports.mask || is_idle(event, module, ports)) return;
  const std::vector<float>& mask = event.linear_masks[*ports.mask];
  for (size_t token = 0; token < mask.size(); ++token) {
    if (mask[token] == float(int64_t(token) < lengths.current)) continue;
    found.emplace_back(
        "S-207", concat("'", module.inputs[*ports.mask].name, "' is ", mask[token], " for token ", token, ", but '",
                        module.inputs[*ports.current].name, "' is ", lengths.current, " (", module.file, ")."));
    return;
  }
}

// Whether the states of linear attention have seen the tokens before this run, and no others.
void check_states(Shadow& shadow, const RunEvent& event, const ModuleShadow& module, const CachePorts& ports,
                  const Lengths& lengths, Found& found) {
  if (is_idle(event, module, ports)) return;
  for (size_t index = 0; index < event.inputs.size(); ++index) {
    if (!module.inputs[index].is_linear_state || module.inputs[index].slot != ports.slot) continue;
    const auto tokens = shadow.tokens_of(event.inputs[index]);
    if (!tokens || *tokens == lengths.valid) continue;
    found.emplace_back("S-208",
                       concat("'", module.inputs[index].name, "' holds the state after ", *tokens, " tokens, but '",
                              module.inputs[*ports.valid].name, "' is ", lengths.valid, " (", module.file, ")."));
    return;
  }
}

// The states of one slot, which `ports` are of. Those of an idle one stay as they are.
void learn_states(Shadow& shadow, const RunEvent& event, const ModuleShadow& module, const CachePorts& ports) {
  const Lengths lengths(event, ports);
  if (!lengths.known) return;
  const bool idle = is_idle(event, module, ports);
  std::vector<size_t> handed_on;  // inputs that outputs stand for, in the same order
  for (size_t index = 0; index < event.inputs.size(); ++index) {
    const PortShadow& port = module.inputs[index];
    if (!port.is_linear_state || port.slot != ports.slot) continue;
    if (!port.is_state) {
      handed_on.push_back(index);
    } else if (!idle) {
      shadow.learn_state(event.inputs[index], lengths.valid + lengths.current);
    }
  }
  size_t number = 0;
  for (size_t index = 0; index < module.outputs.size(); ++index) {
    const PortShadow& port = module.outputs[index];
    if (!port.is_linear_state || port.slot != ports.slot) continue;
    const size_t input = number++;
    if (!idle) {
      // States after padding are those after the last token.
      const int64_t seen = port.step ? std::min(*port.step + 1, lengths.current) : lengths.current;
      shadow.learn_state(event.outputs[index], lengths.valid + seen);
    } else if (input < handed_on.size()) {
      if (const auto tokens = shadow.tokens_of(event.inputs[handed_on[input]]))
        shadow.learn_state(event.outputs[index], *tokens);
    }
  }
}

}  // namespace

Found check_run(Shadow& shadow, const RunEvent& event, std::string& site) {
  Found found;
  const ModuleShadow* const module = shadow.module(event.module);
  site = "Module.run";
  if (module == nullptr) return found;
  bool stale = false;
  if (!module->queue.empty()) {
    site = module->queue.front().site;
    stale = module->queue.front().stale_length;
  }
  // Before the run reads the files: reading one that has become shorter would end the process.
  for (const std::string& change : event.changed_files) found.emplace_back("S-601", change);
  if (!found.empty()) return found;
  for (size_t index = 0; index < event.inputs.size(); ++index) {
    const PortShadow& port = module->inputs[index];
    if (!port.is_read || port.is_state || !shadow.is_unset(port, event.inputs[index])) continue;
    found.emplace_back("S-402", concat("Input '", port.name, "' of ", module->file, "."));
    return found;
  }
  for (const CachePorts& ports : module->caches) {
    const Lengths lengths(event, ports);
    if (!lengths.known) continue;
    if (stale && lengths.valid > 0 && lengths.in_range(ports)) {
      found.emplace_back("S-203", concat("'", module->inputs[*ports.valid].name, "' of ", module->file, " is still ",
                                         lengths.valid, "."));
      return found;
    }
    check_cache(shadow, *module, ports, lengths, found);
    if (found.empty()) check_positions(event, *module, ports, lengths, found);
    if (found.empty()) check_axes(event, *module, ports, lengths, found);
    if (found.empty()) check_mask(event, *module, ports, lengths, found);
    if (found.empty()) check_states(shadow, event, *module, ports, lengths, found);
    if (!found.empty()) return found;  // the other layers' caches would say the same
  }
  return found;
}

void learn_run(Shadow& shadow, const RunEvent& event) {
  ModuleShadow* const module = shadow.module(event.module);
  if (module != nullptr && !module->queue.empty()) {
    if (event.failed || --module->queue.front().rounds == 0) module->queue.pop_front();
  }
  if (event.failed) return;
  for (const TensorFacts& output : event.outputs) {
    if (BufferShadow* buffer = shadow.buffer(output.buffer)) {
      buffer->written.add(output.offset, output.offset + output.span_bytes);
    }
  }
  if (module == nullptr) return;
  for (size_t index = 0; index < module->caches.size(); ++index) {
    const auto& caches = module->caches;  // a slot has several; the first speaks for it
    const bool seen = std::any_of(caches.begin(), caches.begin() + ptrdiff_t(index),
                                  [&](const CachePorts& other) { return other.slot == caches[index].slot; });
    if (!seen) learn_states(shadow, event, *module, caches[index]);
  }
  const uint64_t now = shadow.tick();
  for (const CachePorts& ports : module->caches) {
    const Lengths lengths(event, ports);
    CacheRows* const rows = lengths.known ? shadow.rows(*module, ports) : nullptr;
    if (rows == nullptr) continue;
    const int64_t begin = std::min(lengths.valid, ports.context);
    std::fill(rows->begin() + begin, rows->begin() + std::min(begin + lengths.current, ports.context), now);
  }
}

}  // namespace tcim_lite::layers
