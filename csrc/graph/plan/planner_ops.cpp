// Linear with what it absorbs, and the ops that stand alone.
#include <utility>

#include "base/error.h"
#include "graph/plan/planner.h"

namespace tcim_lite {

void PlanBuilder::add_linear(const Op& op) {
  LinearSpec step;
  const int64_t index = next_step();
  uint32_t x = op.inputs[0];
  if (const auto found = norms_.find(x); found != norms_.end()) {
    const Op& norm = *found->second;
    x = norm.inputs[0];
    step.norm_id = norm.inputs[1];
    step.norm_epsilon = float(norm.attribute("epsilon", 1e-6));
  }
  const Value& matrix = graph_.values[op.inputs[1]];
  if (values_.rows(x).cols != matrix.shape[1]) {
    fail(ErrorCode::Unsupported, "Linear over '", graph_.values[x].name, "' ", to_string(graph_.values[x].shape),
         ": the planner takes [B, T, K], [N, K] or [K]");
  }
  step.elem = values_.elem(x);
  step.x = values_.rows(x);
  step.format = matrix.format;
  step.weights_id = op.inputs[1];
  step.outputs = matrix.shape[0];
  step.inputs = matrix.shape[1];
  if (op.inputs.size() > 2) step.bias_id = op.inputs[2];
  step.float_math = float_math_;
  values_.reads(x, index);

  uint32_t y = op.outputs[0];
  const Op* consumer = values_.sole_consumer(y);
  if (consumer != nullptr && consumer->kind == OpKind::SiluMul) {
    step.epilogue = LinearSpec::Epilogue::SiluMul;
    y = consumer->outputs[0];
    done_.insert(consumer);
  } else if (consumer != nullptr && consumer->kind == OpKind::Add) {
    const uint32_t other = consumer->inputs[0] == y ? consumer->inputs[1] : consumer->inputs[0];
    if (values_.produced(other)) {
      step.epilogue = LinearSpec::Epilogue::AddResidual;
      step.residual = values_.rows(other);
      values_.reads(other, index);
      y = consumer->outputs[0];
      done_.insert(consumer);
    }
  }
  values_.follows(y, x);
  step.y = values_.rows(y);
  values_.writes(y, index);
  append(std::move(step));
}

void PlanBuilder::add_norm(const Op& op) {
  const Op* consumer = values_.sole_consumer(op.outputs[0]);
  if (consumer != nullptr && consumer->kind == OpKind::Linear && consumer->inputs[0] == op.outputs[0]) {
    norms_.emplace(op.outputs[0], &op);
    return;
  }
  RmsNormSpec step;
  const uint32_t x = op.inputs[0];
  step.elem = values_.elem(x);
  step.x = values_.rows(x);
  values_.follows(op.outputs[0], x);
  step.y = values_.rows(op.outputs[0]);
  step.weight_id = op.inputs[1];
  step.groups = step.x.cols / graph_.values[op.inputs[1]].shape[0];
  step.epsilon = float(op.attribute("epsilon", 1e-6));
  values_.reads(x, next_step());
  values_.writes(op.outputs[0], next_step());
  append(std::move(step));
}

void PlanBuilder::add_add(const Op& op) {
  AddSpec step;
  step.elem = values_.elem(op.inputs[0]);
  step.a = values_.rows(op.inputs[0]);
  step.b = values_.rows(op.inputs[1]);
  values_.follows(op.outputs[0], step.a.limited ? op.inputs[0] : op.inputs[1]);
  step.y = values_.rows(op.outputs[0]);
  values_.reads(op.inputs[0], next_step());
  values_.reads(op.inputs[1], next_step());
  values_.writes(op.outputs[0], next_step());
  append(std::move(step));
}

void PlanBuilder::add_silu_mul(const Op& op) {
  SiluMulSpec step;
  step.elem = values_.elem(op.inputs[0]);
  step.x = values_.rows(op.inputs[0]);
  values_.follows(op.outputs[0], op.inputs[0]);
  step.y = values_.rows(op.outputs[0]);
  values_.reads(op.inputs[0], next_step());
  values_.writes(op.outputs[0], next_step());
  append(std::move(step));
}

void PlanBuilder::add_gather(const Op& op) {
  GatherRowSpec step;
  step.elem = values_.elem(op.inputs[0]);
  step.x = values_.rows(op.inputs[0]);
  step.y = values_.rows(op.outputs[0]);
  step.current = op.inputs[1];
  add_length_rule({kNoValue, op.inputs[1]}, step.x.rows, 0);
  values_.reads(op.inputs[0], next_step());
  values_.writes(op.outputs[0], next_step());
  append(std::move(step));
}

void PlanBuilder::add_all_gather(const Op& op) {
  const Value& x = graph_.values[op.inputs[0]];
  if (x.shape.size() > 3) {
    fail(ErrorCode::Unsupported, "AllGather of '", x.name, "' ", to_string(x.shape),
         ": the planner gathers values of rank 3 or less");
  }
  const int64_t now = next_step();
  values_.follows(op.outputs[0], op.inputs[0]);
  values_.reads(op.inputs[0], now);
  values_.writes(op.outputs[0], now);
  heads_open_ = false;
  plan_.gathers.push_back({plan_.steps.size(), values_.elem(op.inputs[0]), values_.rows(op.inputs[0]),
                           values_.rows(op.outputs[0]), op.attribute("offset", int64_t{0})});
}

}  // namespace tcim_lite
