#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {

extern const OpDefinition Add = {
    .signature = "a T, b like a -> like a",
    .meaning = "a + b",
    .cut = Cut::Columns,
    .check = check_elementwise,
    .plan = [](PlanBuilder& plan, const Op& op) { plan.add_elementwise(kAdd, op); },
};

}  // namespace tcim_lite::ops
