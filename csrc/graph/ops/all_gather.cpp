#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

void check_all_gather(const OpCheck& op) {
  op.arity(1, 1, 1);
  op.attributes({"offset"});
  const Value &x = op.input(0), &y = op.output(0);
  const DType dtype = op.tensor(x);
  const int64_t offset = op.whole_number("offset"), width = y.shape.back();
  op.expect(y, dtype, OpCheck::with_last(x.shape, width));
  if (offset < 0 || x.shape.back() > width || offset > width - x.shape.back())
    op.refuse("'", x.name, "', ", describe(x), ", does not fit columns ", offset, " onwards of '", y.name, "', ",
              describe(y));
}

void plan_all_gather(PlanBuilder& plan, const Op& op) {
  const Value& x = plan.value(op.inputs[0]);
  if (x.shape.size() > 4) {
    fail(ErrorCode::Unsupported, "AllGather of '", x.name, "' ", to_string(x.shape),
         ": the planner gathers values of rank 4 or less");
  }
  const Elem elem = plan.values.elem(op.inputs[0]);
  const Rows own = plan.values.rows(op.inputs[0]);
  plan.values.reads(op.inputs[0], plan.next_step());
  const int64_t parts = x.shape.size() == 4 ? x.shape[2] : 1;
  plan.append_gather(
      {0, elem, own, plan.result(op.outputs[0], op.inputs[0]), op.attribute("offset", int64_t{0}), parts});
}

void cost_all_gather(const Graph& graph, const Op& op, OpCost& cost) {
  const Value &x = graph.values[op.inputs[0]], &y = graph.values[op.outputs[0]];
  cost.work = WorkKind::Exchange;
  cost.exchanged_bytes = uint64_t(num_elements(y.shape) - num_elements(x.shape)) * uint64_t(size_of(y.dtype));
}

}  // namespace

extern const OpDefinition AllGather = {"x [.., n] T {offset: int} -> [.., width] T",
                                       "columns [offset, offset + n) are x, the other devices give the rest",
                                       Cut::None,
                                       check_all_gather,
                                       plan_all_gather,
                                       nullptr,
                                       kNoOperand,
                                       cost_all_gather};

}  // namespace tcim_lite::ops
