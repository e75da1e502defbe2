#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

void check_softmax(const OpCheck& op) {
  op.arity(1, 1, 1);
  op.attributes({"log"});
  flag(op, "log");
  const DType dtype = op.tensor(op.input(0));
  op.expect(op.output(0), dtype, op.input(0).shape);
}

void plan_softmax(PlanBuilder& plan, const Op& op) {
  auto step = step_over_rows<SoftmaxSpec>(plan, op);
  step.log = op.attribute("log", int64_t{0}) != 0;
  append_map(plan, op, std::move(step));
}

}  // namespace

extern const OpDefinition Softmax = {"x [.., n] T {log: 0 or 1 (0)} -> like x",
                                     "softmax over the last axis, or its logarithm", Cut::None, check_softmax,
                                     plan_softmax};

}  // namespace tcim_lite::ops
