// Decodes the ports section (docs/hmm-format.md section 5.2).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tcim_lite::hmm {

// Sets the roles and aliases of the inputs and outputs of all parts, which have been validated together. Throws
// Error(Format) for anything that section 5.2 does not allow; `label` names the section in messages.
void decode_ports(std::span<const std::byte> bytes, const std::string& label, std::vector<Graph>& parts);

}  // namespace tcim_lite::hmm
