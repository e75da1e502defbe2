// Bytes of the graph section (docs/hmm-format.md section 5).
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "graph/graph.h"

namespace tcim_lite::hmm {

// Decodes only; validate() checks what was decoded. Throws Error(Format) beginning with `label`.
Graph decode_graph(std::span<const std::byte> bytes, const std::string& label);

}  // namespace tcim_lite::hmm
