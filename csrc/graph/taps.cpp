#include "graph/taps.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <variant>

#include "graph/ops/op_definition.h"

namespace tcim_lite {
namespace {

// Values that can be tapped, in execution order.
std::vector<uint32_t> tappable(const Graph& graph) {
  const std::set<uint32_t> outputs(graph.outputs.begin(), graph.outputs.end());
  std::vector<uint32_t> found;
  for (const Op& op : graph.ops) {
    std::set<uint32_t> skipped = outputs;
    for (const StateOperand& state : states_of(op)) skipped.insert(op.outputs[state.output]);
    for (const uint32_t id : op.outputs) {
      if (skipped.count(id) == 0) found.push_back(id);
    }
  }
  return found;
}

uint32_t id_of(const Rows& rows) { return rows.value; }
uint32_t id_of(uint32_t value) { return value; }

// What a step stores, caches aside.
template <typename Spec>
std::vector<uint32_t> results_of(const Spec& spec) {
  return {id_of(spec.y)};
}
std::vector<uint32_t> results_of(const HeadsSpec& spec) {
  std::vector<uint32_t> results;
  for (const HeadChainSpec& chain : spec.chains) {
    if (chain.caches.empty()) results.push_back(chain.y.value);
  }
  return results;
}
std::vector<uint32_t> results_of(const HeadsAttentionSpec& spec) { return {spec.attention.y.value}; }
std::vector<uint32_t> results_of(const MoERouteSpec& spec) { return {spec.ids.value, spec.weights.value}; }
std::vector<uint32_t> results_of(const MoELinearSpec& spec) { return {spec.linear.y.value}; }
std::vector<uint32_t> results_of(const TopKSpec& spec) { return {spec.values, spec.indices}; }

std::set<uint32_t> stored_values(const Plan& plan) {
  std::set<uint32_t> stored;
  for (const StepSpec& step : plan.steps) {
    const std::vector<uint32_t> results = std::visit([](const auto& spec) { return results_of(spec); }, step);
    stored.insert(results.begin(), results.end());
  }
  return stored;
}

}  // namespace

Graph with_taps(const Graph& graph, std::span<const std::string> patterns, Numerics numerics,
                std::vector<std::string>& unmatched) {
  Graph tapped = graph;
  const bool wants_stored = std::find(patterns.begin(), patterns.end(), kStoredTaps) != patterns.end();
  const std::set<uint32_t> stored = wants_stored ? stored_values(build_plan(graph, numerics)) : std::set<uint32_t>();
  std::vector<bool> fits(patterns.size());
  for (const uint32_t id : tappable(graph)) {
    bool wanted = false;
    for (size_t i = 0; i < patterns.size(); ++i) {
      const bool fit = patterns[i] == kStoredTaps ? stored.count(id) > 0
                                                  : fnmatch(patterns[i].c_str(), graph.values[id].name.c_str(), 0) == 0;
      if (fit) wanted = fits[i] = true;
    }
    if (!wanted) continue;
    tapped.outputs.push_back(id);
    ++tapped.taps;
  }
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (!fits[i] && patterns[i] != kStoredTaps) unmatched.push_back(patterns[i]);
  }
  return tapped;
}

}  // namespace tcim_lite
