#include "hmm/legacy_aliases.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace tcim_lite::hmm {
namespace {

constexpr std::string_view kDigits = "0123456789";

// Of a compiled name without batch suffix, or nothing.
std::string exporter_name(std::string_view name) {
  if (name == "input_1") return "inputs_embeds";
  if (name == "valid_length") return "past_seq_length";
  if (name == "current_length") return "current_input_length";
  constexpr std::string_view kLayers = "model_layers_";
  if (!name.starts_with(kLayers)) return {};
  name.remove_prefix(kLayers.size());
  const size_t digits = std::min(name.find_first_not_of(kDigits), name.size());
  const std::string layer(name.substr(0, digits));
  name.remove_prefix(digits);
  if (layer.empty()) return {};
  if (name == "_self_attn_kcache_input") return "past_key_cache_" + layer;
  if (name == "_self_attn_vcache_input") return "past_value_cache_" + layer;
  return {};
}

}  // namespace

void add_legacy_aliases(Graph& graph) {
  for (const uint32_t id : graph.inputs) {
    std::string_view name = graph.values[id].name;
    constexpr std::string_view kFormat = ".hmcc.format", kBatch = "_batch_";
    if (name.ends_with(kFormat)) name.remove_suffix(kFormat.size());
    const size_t at = std::min(name.rfind(kBatch), name.size());
    std::string_view batch = name.substr(at);
    if (batch.size() <= kBatch.size() || batch.find_first_not_of(kDigits, kBatch.size()) != std::string_view::npos)
      batch = {};
    const std::string alias = exporter_name(name.substr(0, name.size() - batch.size()));
    if (!alias.empty()) graph.values[id].aliases.push_back(alias + std::string(batch));
  }
}

}  // namespace tcim_lite::hmm
