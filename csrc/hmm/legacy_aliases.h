// Names of inputs in files that were written before the ports section.
#pragma once

#include "graph/graph.h"

namespace tcim_lite::hmm {

// Gives the inputs of a version 1.0 graph the exporter's names, which were derived from the compiled ones then
// (docs/hmm-format.md section 5.2).
void add_legacy_aliases(Graph& graph);

}  // namespace tcim_lite::hmm
