#include "graph/ops/broadcast.h"
#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

void check_where(const OpCheck& op) {
  op.arity(3, 3, 1);
  op.attributes({});
  const DType dtype = tensor_or_integers(op, op.output(0), true);
  for (size_t i = 0; i < 3; ++i) {
    tensor_or_weight(op, op.input(i), dtype);
    if (broadcast_shape(op, op.input(i), op.output(0)) != op.output(0).shape)
      op.refuse("'", op.input(i).name, "' is ", describe(op.input(i)), ", which does not repeat to '",
                op.output(0).name, "', ", describe(op.output(0)));
  }
}

void plan_where(PlanBuilder& plan, const Op& op) { plan_broadcast(plan, op, BroadcastSpec::kWhere); }

}  // namespace

extern const OpDefinition Where = {"condition T, a T, b T of shapes that repeat to one, T or int32 -> T of that shape",
                                   "a where the condition is not 0, else b", Cut::None, check_where, plan_where};

}  // namespace tcim_lite::ops
