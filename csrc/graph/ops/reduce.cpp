// The reductions of ops.def.
#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

template <ReduceOp kind>
void check_reduce(const OpCheck& op) {
  op.arity(1, 1, 1);
  op.attributes({});
  const DType dtype = tensor_or_integers(op, op.input(0), has_integers(kind));
  op.expect(op.output(0), dtype, OpCheck::with_last(op.input(0).shape, 1));
}

template <ReduceOp kind>
void plan_reduce(PlanBuilder& plan, const Op& op) {
  auto step = step_over_rows<ReduceSpec>(plan, op);
  step.op = kind;
  append_map(plan, op, std::move(step));
}

}  // namespace

#define TCIM_LITE_REDUCE(name, version, what)                                                                    \
  extern const OpDefinition name = {                                                                             \
      has_integers(k##name) ? "x [.., n] T or int32 -> [.., 1] of its dtype" : "x [.., n] T -> [.., 1] T", what, \
      Cut::None, check_reduce<k##name>, plan_reduce<k##name>};
#include "graph/ops.def"

}  // namespace tcim_lite::ops
