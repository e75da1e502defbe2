// The weight table (docs/hmm-format.md section 4.1).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "hmm/layout.h"
#include "hmm/reader.h"

namespace tcim_lite::hmm {

// Reads the entries and checks each by itself. Throws Error(Format) beginning with `label`.
std::vector<WeightEntry> decode_weight_table(std::span<const std::byte> bytes, const std::string& label);

// Checks names and ranges of all entries against each other and the payload; null when there is none.
void check_weights(const std::vector<WeightEntry>& weights, const SectionEntry* payload, FileKind kind,
                   const std::string& label);

}  // namespace tcim_lite::hmm
