// A model for several devices: one graph per device, and how its inputs and outputs are cut.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace tcim_lite {

constexpr uint32_t kMaxParts = 32;
constexpr int32_t kWhole = -1;

// Per input and output, in API order: the axis that is cut over the devices in rank order, or kWhole when every device
// holds all of it. The logical extent of a cut axis is the sum of the parts' extents.
struct Split {
  std::vector<int32_t> inputs;
  std::vector<int32_t> outputs;
};

// Throws Error(Format) unless the parts, valid each by itself, fit together (docs/hmm-format.md section 5.1).
void validate_parts(std::span<const Graph> parts, const Split& split);

// AllGathers of a graph, in order.
std::vector<const Op*> all_gathers(const Graph& graph);

}  // namespace tcim_lite
