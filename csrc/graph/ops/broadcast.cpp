#include "graph/ops/broadcast.h"

#include "graph/ops/dense.h"

namespace tcim_lite::ops {
namespace {

// Whether axis `next` continues axis `last` of every operand.
bool continues(const BroadcastSpec& step, size_t count, const std::vector<int64_t> (&strides)[3], size_t axis,
               int64_t extent) {
  for (size_t i = 0; i < count; ++i) {
    if (step.strides[i][step.axes - 1] != strides[i][axis] * extent) return false;
  }
  return true;
}

}  // namespace

void plan_broadcast(PlanBuilder& plan, const Op& op, int kind) {
  BroadcastSpec step;
  step.op = kind;
  step.elem = computed_elem(plan, op.outputs[0]);
  const Shape& shape = plan.value(op.outputs[0]).shape;
  const size_t count = op.inputs.size();
  std::vector<int64_t> strides[3];
  for (size_t i = 0; i < count; ++i) {
    strides[i] = broadcast_strides(plan.value(op.inputs[i]).shape, shape);
    step.operands[i] = read_operand(plan, op, i);
  }
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1) continue;
    if (step.axes > 0 && continues(step, count, strides, axis, shape[axis])) {
      --step.axes;
      step.extents[step.axes] *= shape[axis];
    } else {
      step.extents[step.axes] = shape[axis];
    }
    for (size_t i = 0; i < count; ++i) step.strides[i][step.axes] = strides[i][axis];
    ++step.axes;
  }
  append_dense(plan, op, std::move(step));
}

}  // namespace tcim_lite::ops
