#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

void check_slice(const OpCheck& op) {
  op.arity(1, 1, 1);
  op.attributes({"start", "stop"});
  const Value& x = op.input(0);
  const DType dtype = op.tensor(x);
  const int64_t start = op.whole_number("start"), stop = op.whole_number("stop");
  if (start < 0 || stop <= start || stop > x.shape.back())
    op.refuse("start ", start, " and stop ", stop, " are not a range of '", x.name, "', ", describe(x));
  op.expect(op.output(0), dtype, OpCheck::with_last(x.shape, stop - start));
}

void plan_slice(PlanBuilder& plan, const Op& op) {
  const Value& x = plan.value(op.inputs[0]);
  if (x.shape.size() > 3) {
    fail(ErrorCode::Unsupported, "Slice of '", x.name, "': the planner slices values of rank 3 or less");
  }
  plan.values.make_view(op.outputs[0], op.inputs[0], op.attribute("start", int64_t{0}),
                        plan.values.rows(op.outputs[0]).cols);
}

}  // namespace

extern const OpDefinition Slice = {
    "x T {start: int, stop: int} -> x[.., start:stop]", "a view", Cut::Follows, check_slice, plan_slice, nullptr, 0};

}  // namespace tcim_lite::ops
