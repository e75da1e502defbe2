#include "runtime/slot.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tcim_lite {
namespace {

constexpr std::string_view kFormatSuffix = ".hmcc.format";

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// The exporter's name of a compiled name without batch suffix (llm-graphs.md section 2.1), or nothing.
std::string exporter_name(std::string_view name) {
  if (name == "input_1") return "inputs_embeds";
  if (name == "valid_length") return "past_seq_length";
  if (name == "current_length") return "current_input_length";
  std::string_view rest = name;
  if (!take_prefix(rest, "model_layers_")) return {};
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  const std::string layer(rest.substr(0, digits));
  rest.remove_prefix(digits);
  if (layer.empty()) return {};
  if (rest == "_self_attn_kcache_input") return "past_key_cache_" + layer;
  if (rest == "_self_attn_vcache_input") return "past_value_cache_" + layer;
  return {};
}

// Everything else a slot answers to.
std::vector<std::string> aliases_of(std::string_view name) {
  if (name.ends_with(kFormatSuffix)) name.remove_suffix(kFormatSuffix.size());
  std::vector<std::string> aliases{std::string(name)};
  std::string_view base = name, batch;
  constexpr std::string_view kBatch = "_batch_";
  if (const size_t at = name.rfind(kBatch);
      at != std::string_view::npos && at + kBatch.size() < name.size() &&
      name.find_first_not_of("0123456789", at + kBatch.size()) == std::string_view::npos) {
    base = name.substr(0, at);
    batch = name.substr(at + kBatch.size());
  }
  const std::string exporter = exporter_name(base);
  if (batch.empty()) {
    if (!exporter.empty()) aliases.push_back(exporter);
    return aliases;
  }
  aliases.push_back(std::string(base) + "_batch" + std::string(batch));
  if (!exporter.empty()) {
    aliases.push_back(exporter + "_batch_" + std::string(batch));
    aliases.push_back(exporter + "_batch" + std::string(batch));
  }
  return aliases;
}

// What slot `port` looks like as one tensor.
TensorInfo logical_info(std::span<const Graph> parts, std::vector<uint32_t> Graph::* ids, size_t port, int axis,
                        const std::vector<int>& device_ids) {
  const Value& first = parts[0].values[(parts[0].*ids)[port]];
  Shape shape = first.shape;
  if (parts.size() == 1) return TensorInfo::dense(first.dtype, shape, device_ids[0], first.name);
  Placement placement{device_ids, axis, {}};
  if (axis != kWhole) {
    for (const Graph& part : parts) placement.extents.push_back(part.values[(part.*ids)[port]].shape[size_t(axis)]);
    shape[size_t(axis)] = std::accumulate(placement.extents.begin(), placement.extents.end(), int64_t{0});
  }
  TensorInfo info = TensorInfo::dense(first.dtype, shape, device_ids[0], first.name);
  info.placement = std::make_shared<const Placement>(std::move(placement));
  return info;
}

}  // namespace

SlotTable::SlotTable(std::span<const Graph> parts, std::vector<uint32_t> Graph::* ids, const std::vector<int32_t>& axes,
                     const std::vector<int>& device_ids) {
  const size_t count = (parts[0].*ids).size();
  slots_.reserve(count);
  for (size_t port = 0; port < count; ++port) {
    Slot slot;
    slot.info = logical_info(parts, ids, port, parts.size() == 1 ? kWhole : axes[port], device_ids);
    if (parts[0].values[(parts[0].*ids)[port]].kind == ValueKind::State) slot.content = Content::Zero;
    by_name_.emplace(slot.name(), uint32_t(port));
    slots_.push_back(std::move(slot));
  }
  // After the compiled names, so that an alias never hides one.
  for (uint32_t index = 0; index < slots_.size(); ++index) {
    for (std::string& alias : aliases_of(slots_[index].name())) by_name_.emplace(std::move(alias), index);
  }
}

Slot* SlotTable::find(std::string_view name) {
  auto found = by_name_.find(name);
  if (found == by_name_.end() && name.ends_with(kFormatSuffix)) {
    found = by_name_.find(name.substr(0, name.size() - kFormatSuffix.size()));
  }
  return found == by_name_.end() ? nullptr : &slots_[found->second];
}

std::string SlotTable::names() const {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, slots_.size()); ++i) text += (i ? ", " : "") + slots_[i].name();
  if (slots_.size() > kShown) text += " and " + std::to_string(slots_.size() - kShown) + " more";
  return text;
}

}  // namespace tcim_lite
