#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

constexpr std::string_view kFrom = "from";

void check_cast(const OpCheck& op) {
  op.arity(1, 1, 1);
  op.attributes({kFrom});
  const Value &x = op.input(0), &y = op.output(0);
  op.not_a_weight(x);
  if (op.has_attribute(kFrom)) {
    op.text_in(kFrom, {name_of(DType::Float32)});
    op.expect(x, DType::Float32, x.shape);
    op.tensor(y);  // first, so that the graph's dtype is that of y
    return op.expect(y, DType::Float16, x.shape);
  }
  if (y.dtype == DType::Int32) {
    op.tensor(x);
    op.expect(y, DType::Int32, x.shape);
    return;
  }
  op.expect(x, DType::Int32, x.shape);
  op.expect(y, op.tensor(y), x.shape);
}

void plan_narrowed(PlanBuilder& plan, const Op& op) {
  CopySpec step;
  step.from = plan.values.elem(op.inputs[0]);
  step.to = plan.values.elem(op.outputs[0]);
  step.x = plan.values.rows(op.inputs[0]);
  plan.values.reads(op.inputs[0], plan.next_step());
  step.y = plan.result(op.outputs[0], op.inputs[0]);
  plan.append(std::move(step));
}

void plan_cast(PlanBuilder& plan, const Op& op) {
  if (op.find(kFrom) != nullptr) return plan_narrowed(plan, op);
  CastSpec step;
  step.from = computed_elem(plan, op.inputs[0]);
  step.to = computed_elem(plan, op.outputs[0]);
  step.count = num_elements(plan.value(op.inputs[0]).shape);
  append_map(plan, op, std::move(step));
}

}  // namespace

extern const OpDefinition Cast = {
    "x int32 -> T of its shape, or x T -> int32 of its shape, or "
    "x float32 {from: string} -> float16 of its shape",
    "the nearest number of T, in float16 at most 65504 with its sign; or x without its "
    "fraction, in int32 the nearest that there is, and 0 for NaN. `from` is \"float32\", "
    "of an input whose programs give float32 where T is float16",
    Cut::None, check_cast, plan_cast};

}  // namespace tcim_lite::ops
