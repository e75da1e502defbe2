#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

void check_batch_gather(const OpCheck& op) {
  op.arity(2, 2, 1);
  op.attributes({});
  const Value& x = op.input(0);
  const DType dtype = op.tensor(x);
  op.rank(x, 3);
  if (x.shape[0] != 1) op.refuse("'", x.name, "' is ", describe(x), ", expected one slot");
  op.length(op.input(1));
  op.expect(op.output(0), dtype, {1, 1, x.shape[2]});
}

void plan_batch_gather(PlanBuilder& plan, const Op& op) {
  GatherRowSpec step;
  step.elem = plan.values.elem(op.inputs[0]);
  step.x = plan.values.rows(op.inputs[0]);
  step.y = plan.values.rows(op.outputs[0]);
  step.current = op.inputs[1];
  plan.add_length_rule({kNoValue, op.inputs[1]}, step.x.rows, 0);
  plan.values.reads(op.inputs[0], plan.next_step());
  plan.values.writes(op.outputs[0], plan.next_step());
  plan.append(std::move(step));
}

}  // namespace

extern const OpDefinition BatchGather = {"x [1, T, H] T, current int32 [1] -> [1, 1, H] T", "row current - 1",
                                         Cut::Columns, check_batch_gather, plan_batch_gather};

}  // namespace tcim_lite::ops
