// The elementwise ops of ops.def: they differ in what kernels compute and in nothing that a graph knows.
#include <utility>

#include "graph/ops/broadcast.h"
#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

// Operands that repeat along axes, are weights, or integers.
void check_broadcast(const OpCheck& op, bool integers) {
  if (!flag(op, "broadcast")) op.refuse("attribute 'broadcast' is 0, expected 1 or no attribute");
  const DType dtype = tensor_or_integers(op, op.output(0), integers);
  tensor_or_weight(op, op.input(0), dtype);
  tensor_or_weight(op, op.input(1), dtype);
  op.expect(op.output(0), dtype, broadcast_shape(op, op.input(0), op.input(1)));
}

template <ElementwiseOp kind>
void check_elementwise(const OpCheck& op) {
  op.arity(2, 2, 1);
  op.attributes({"broadcast"});
  if (op.has_attribute("broadcast")) return check_broadcast(op, has_integers(kind));
  const DType dtype = op.tensor(op.input(0));
  op.tensor(op.input(1));
  op.expect(op.input(1), dtype, op.input(0).shape);
  op.expect(op.output(0), dtype, op.input(0).shape);
}

template <ElementwiseOp kind>
void plan_elementwise(PlanBuilder& plan, const Op& op) {
  if (op.find("broadcast") != nullptr) return plan_broadcast(plan, op, kind);
  ElementwiseSpec step;
  step.op = kind;
  step.elem = plan.values.elem(op.inputs[0]);
  step.a = plan.values.rows(op.inputs[0]);
  step.b = plan.values.rows(op.inputs[1]);
  for (uint32_t id : op.inputs) plan.values.reads(id, plan.next_step());
  step.y = plan.result(op.outputs[0], step.a.limited ? op.inputs[0] : op.inputs[1]);
  plan.append(std::move(step));
}

}  // namespace

constexpr std::string_view kSignature =
    "a T, b like a {broadcast: 1 (optional): shapes repeat to one, and either operand may be a weight of T} -> T";
constexpr std::string_view kSignatureOfIntegers =
    "a T, b like a {broadcast: 1 (optional): shapes repeat to one, either operand may be a weight of T, and T may be "
    "int32} -> T";

#define TCIM_LITE_ELEMENTWISE(name, version, what)                                                                 \
  extern const OpDefinition name = {has_integers(k##name) ? kSignatureOfIntegers : kSignature, what, Cut::Columns, \
                                    check_elementwise<k##name>, plan_elementwise<k##name>};
#include "graph/ops.def"

}  // namespace tcim_lite::ops
