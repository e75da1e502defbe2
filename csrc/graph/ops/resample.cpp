#include "graph/ops/dense.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::ops {
namespace {

void check_resample(const OpCheck& op) {
  op.arity(3, 3, 1);
  op.attributes({"axis"});
  const Value &x = op.input(0), &indices = op.input(1), &weights = op.input(2);
  const DType dtype = op.tensor(x);
  op.rank(indices, 2);
  op.constant(indices, DType::Int32, indices.shape);
  op.constant(weights, DType::Float32, indices.shape);
  const size_t axis = op.axis_of(x);
  Shape shape = x.shape;
  shape[axis] = indices.shape[0];
  op.expect(op.output(0), dtype, shape);
}

void plan_resample(PlanBuilder& plan, const Op& op) {
  ResampleSpec step;
  const Middle middle = middle_of(plan.value(op.inputs[0]).shape, op.attribute("axis", int64_t{0}));
  step.elem = plan.values.elem(op.inputs[0]);
  step.outer = middle.outer;
  step.extent = middle.extent;
  step.inner = middle.inner;
  step.indices_id = op.inputs[1];
  step.weights_id = op.inputs[2];
  step.count = plan.value(op.inputs[1]).shape[0];
  step.taps = plan.value(op.inputs[1]).shape[1];
  append_map(plan, op, std::move(step));
}

}  // namespace

extern const OpDefinition Resample = {
    "x T, weight [n, taps] int32 (indices), weight [n, taps] float32 {axis: int} -> T, n at the axis",
    "y[i] = sum over t of weights[i, t] * x[indices[i, t]] along an axis", Cut::None, check_resample, plan_resample};

}  // namespace tcim_lite::ops
