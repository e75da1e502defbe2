// Taps: intermediate values that a load makes outputs, besides the graph's own. An extension for finding out where two
// runs differ; the vendor's API has nothing like it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/plan/plan.h"

namespace tcim_lite {

// An output that is a tap is called this and the value's name.
constexpr std::string_view kTapPrefix = "tap:";

// A pattern that stands for every value that a plan without taps stores. Such taps change nothing about how ops are
// fused: they show a run as it is without them.
constexpr std::string_view kStoredTaps = "@stored";

// The graph with a tap for every value that an op makes and whose name fits a pattern (*, ? and [..], as in a shell),
// in execution order. Outputs need none, and updated states have none: the input of the state shows them. The planner
// fuses no op across an output, and every fusion keeps the roundings of the single ops, so the other outputs keep their
// values. Names that fit nothing are added to `unmatched`.
Graph with_taps(const Graph& graph, std::span<const std::string> patterns, Numerics numerics,
                std::vector<std::string>& unmatched);

}  // namespace tcim_lite
