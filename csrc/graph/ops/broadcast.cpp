#include "graph/ops/broadcast.h"

#include <algorithm>

#include "graph/ops/dense.h"

namespace tcim_lite::ops {
namespace {

// An operand with its strides along the axes of the result.
struct Broad {
  Operand operand;
  std::vector<int64_t> strides;
};

Broad operand_of(PlanBuilder& plan, const Op& op, size_t input, const Shape& shape) {
  return {read_operand(plan, op, input), broadcast_strides(plan.value(op.inputs[input]).shape, shape)};
}

// Whether a step of `elem` can read the value now.
bool is_there(PlanBuilder& plan, uint32_t id, Elem elem) {
  if (plan.value(id).kind == ValueKind::Weight) return true;
  const Rows rows = plan.values.rows(id);
  return plan.values.produced(id) && plan.values.elem(id) == elem && rows.stride == rows.cols && !rows.limited;
}

// The op that alone reads `value` and can go on where the step stands, in its place; else null. `operand` becomes the
// number of its other operand, if it has one.
const Op* next_op(PlanBuilder& plan, uint32_t value, const Shape& shape, Elem elem, size_t& operand) {
  const Op* op = plan.values.sole_consumer(value);
  if (op == nullptr || plan.value(op->outputs[0]).shape != shape) return nullptr;
  if (function_of(op->kind) >= 0) return op;
  const int kind = elementwise_of(op->kind);
  if (kind < 0 || op->inputs[0] == op->inputs[1]) return nullptr;
  operand = op->inputs[0] == value ? 1 : 0;
  if (operand == 0 && kind != kAdd && kind != kMul) return nullptr;
  return is_there(plan, op->inputs[operand], elem) ? op : nullptr;
}

// Whether axis `next` continues axis `last` of every operand.
bool continues(const std::vector<Broad>& all, size_t last, size_t next, int64_t extent) {
  return std::all_of(all.begin(), all.end(),
                     [&](const Broad& x) { return x.strides[last] == x.strides[next] * extent; });
}

}  // namespace

void plan_broadcast(PlanBuilder& plan, const Op& op, int kind) {
  BroadcastSpec step;
  step.op = kind;
  step.elem = computed_elem(plan, op.outputs[0]);
  const Shape& shape = plan.value(op.outputs[0]).shape;
  const size_t count = op.inputs.size();
  std::vector<Broad> all;
  for (size_t i = 0; i < count; ++i) {
    const bool beside_a_weight = count == 2 && plan.value(op.inputs[1 - i]).kind == ValueKind::Weight;
    if (beside_a_weight && plan.value(op.inputs[i]).kind != ValueKind::Weight) {
      const Operand operand{read_elements(plan, op, i, op.outputs[0]), false};
      all.push_back({operand, broadcast_strides(plan.value(op.inputs[i]).shape, shape)});
    } else {
      all.push_back(operand_of(plan, op, i, shape));
    }
  }
  const Op* last = &op;
  while (plan.joins() == Joins::Products && step.elem != kI32 && int(step.then.size()) < BroadcastSpec::kMostThen) {
    size_t operand = 0;
    const Op* next = next_op(plan, last->outputs[0], shape, step.elem, operand);
    if (next == nullptr) break;
    BroadcastSpec::Then then;
    then.op = elementwise_of(next->kind);
    then.function = function_of(next->kind);
    if (then.op >= 0) {
      all.push_back(operand_of(plan, *next, operand, shape));
    } else {
      then.alpha = float(next->attribute("alpha", 0.0));
      then.beta = float(next->attribute("beta", 0.0));
    }
    step.then.push_back(then);
    plan.absorb(*next);
    last = next;
  }
  std::vector<size_t> axes;  // the last of those that are one
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1) continue;
    const bool goes_on = !axes.empty() && continues(all, axes.back(), axis, shape[axis]);
    const int64_t before = goes_on ? step.extents[axes.size() - 1] : 1;
    if (goes_on) axes.pop_back();
    step.extents[axes.size()] = before * shape[axis];
    axes.push_back(axis);
  }
  step.axes = int(axes.size());
  const auto resolve = [&](const Broad& from, Operand& operand, int64_t* strides) {
    operand = from.operand;
    for (size_t i = 0; i < axes.size(); ++i) strides[i] = from.strides[axes[i]];
  };
  for (size_t i = 0; i < count; ++i) resolve(all[i], step.operands[i], step.strides[i]);
  size_t used = count;
  for (BroadcastSpec::Then& then : step.then) {
    if (then.op >= 0) resolve(all[used++], then.operand, then.strides);
  }
  if (last != &op) plan.values.follows(last->outputs[0], op.outputs[0]);
  append_dense(plan, *last, std::move(step));
}

}  // namespace tcim_lite::ops
