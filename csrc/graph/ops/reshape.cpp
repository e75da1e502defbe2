#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

void check_reshape(const OpCheck& op) {
  op.arity(1, 1, 1);
  op.attributes({});
  const Value &x = op.input(0), &y = op.output(0);
  op.not_a_weight(x);
  if (x.dtype != y.dtype || num_elements(x.shape) != num_elements(y.shape))
    op.refuse("'", x.name, "' is ", describe(x), " and '", y.name, "' is ", describe(y),
              ", expected the same dtype and number of elements");
}

void plan_reshape(PlanBuilder& plan, const Op& op) {
  const uint32_t x = op.inputs[0], y = op.outputs[0];
  const Rows source = plan.values.rows(x), form = plan.values.rows(y);
  const bool dense = source.stride == source.cols && !source.limited;
  if (form.rows != source.rows && !dense) {
    fail(ErrorCode::Unsupported, "Reshape of '", plan.value(x).name, "' from ", to_string(plan.value(x).shape), " to ",
         to_string(plan.value(y).shape),
         ": the planner cannot change the rows of a sliced value or of one with live rows");
  }
  plan.values.make_view(y, x, 0, form.cols);
}

}  // namespace

extern const OpDefinition Reshape = {"x -> same dtype and number of elements, another shape",
                                     "a view",
                                     Cut::Follows,
                                     check_reshape,
                                     plan_reshape,
                                     nullptr,
                                     0};

}  // namespace tcim_lite::ops
