// The lengths of a run against what the graph can take.
#pragma once

#include <cstdint>
#include <functional>

#include "graph/plan/plan.h"

namespace tcim_lite {

// `length` reads a length input by value id. Throws Error(Argument) for a length that cannot be. Tokens beyond the
// context are logged once per `warned`.
void check_lengths(const Plan& plan, const Graph& graph, const std::function<int64_t(uint32_t)>& length, bool& warned);

// The error of a NaN or infinity in a live row of an input.
[[noreturn]] void refuse_input(const Graph& graph, const Plan::FloatInput& input);

}  // namespace tcim_lite
