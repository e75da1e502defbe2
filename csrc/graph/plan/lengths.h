// The lengths and positions of a run against what the graph can take.
#pragma once

#include <cstdint>
#include <functional>

#include "graph/plan/plan.h"

namespace tcim_lite {

// The first numbers of an int32 input, by value id, until the next call.
using IntegerInputs = std::function<const int32_t*(uint32_t id, int64_t count)>;

// Throws Error(Argument) for a length that cannot be, or a position outside the tables. Tokens beyond the context are
// logged once per `warned`.
void check_lengths(const Plan& plan, const Graph& graph, const IntegerInputs& integers, bool& warned);

// The error of a NaN or infinity in a live row of an input.
[[noreturn]] void refuse_input(const Graph& graph, const Plan::FloatInput& input);

}  // namespace tcim_lite
