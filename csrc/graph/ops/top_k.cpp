#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

void check_top_k(const OpCheck& op) {
  op.arity(1, 1, 2);
  op.attributes({"k", "largest"});
  const Value& x = op.input(0);
  const DType dtype = tensor_or_integers(op, x, true);
  const int64_t k = op.whole_number("k");
  if (k < 1 || k > x.shape.back()) op.refuse("attribute 'k' is ", k, ", '", x.name, "' is ", describe(x));
  flag(op, "largest");
  op.expect(op.output(0), dtype, OpCheck::with_last(x.shape, k));
  op.expect(op.output(1), DType::Int32, OpCheck::with_last(x.shape, k));
}

void plan_top_k(PlanBuilder& plan, const Op& op) {
  auto step = step_over_rows<TopKSpec>(plan, op);
  step.chosen = op.attribute("k", int64_t{1});
  step.largest = op.attribute("largest", int64_t{0}) != 0;
  step.x = read_dense(plan, op, 0);
  step.values = write_dense(plan, op, 0);
  step.indices = write_dense(plan, op, 1);
  plan.append(std::move(step));
}

}  // namespace

extern const OpDefinition TopK = {
    "x [.., n] T or int32 {k: int, largest: 0 or 1 (0)} -> values [.., k] of its dtype, indices [.., k] int32",
    "the k largest or smallest of the last axis, the best first; of equal ones the first", Cut::None, check_top_k,
    plan_top_k};

}  // namespace tcim_lite::ops
