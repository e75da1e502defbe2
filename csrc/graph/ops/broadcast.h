// The step of elementwise ops whose operands repeat, or are weights.
#pragma once

#include "graph/graph.h"

namespace tcim_lite {
class PlanBuilder;
}

namespace tcim_lite::ops {

// `kind` is an ElementwiseOp or BroadcastSpec::kWhere.
void plan_broadcast(PlanBuilder& plan, const Op& op, int kind);

}  // namespace tcim_lite::ops
