#include "backends/cpu/plan_builder.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "backends/cpu/ops/attention.h"
#include "backends/cpu/ops/heads.h"
#include "backends/cpu/ops/linear.h"
#include "backends/cpu/ops/row_steps.h"
#include "backends/cpu/plan_values.h"
#include "base/error.h"

namespace tcim_lite::cpu {
namespace {

class PlanBuilder {
 public:
  PlanBuilder(const Graph& graph, const std::vector<WeightBytes>& weights, bool float_math)
      : graph_(graph), weights_(weights), float_math_(float_math), values_(graph, float_math) {}

  Plan build();

 private:
  int64_t next_step() const { return int64_t(plan_.steps.size()); }
  template <typename StepType>
  StepType& append(std::unique_ptr<StepType> step);
  bool is_done(const Op& op) const { return done_.count(&op) != 0; }

  template <typename T>
  const T* weight(uint32_t id) const {
    return reinterpret_cast<const T*>(weights_[graph_.values[id].weight].data());
  }

  void add_inputs();
  void add_op(const Op& op);
  void add_linear(const Op& op);
  void add_heads(const Op& first);
  void add_attention(const Op& op);
  void add_norm(const Op& op);
  void add_add(const Op& op);
  void add_silu_mul(const Op& op);
  void add_gather(const Op& op);
  void add_view(const Op& op);
  void add_outputs();
  void add_length_rule(SlotLengths slot, int64_t tokens, int64_t context);
  bool starts_heads(const Op& op) const;

  const Graph& graph_;
  const std::vector<WeightBytes>& weights_;
  const bool float_math_;
  PlanValues values_;
  Plan plan_;
  std::set<const Op*> done_;                          // fused into an earlier step
  std::vector<std::pair<uint32_t, const Op*>> norms_;  // RMSNorm outputs that their Linear computes
  HeadsStep* open_heads_ = nullptr;                   // the last step, when it can take another chain
};

template <typename StepType>
StepType& PlanBuilder::append(std::unique_ptr<StepType> step) {
  StepType& added = *step;
  open_heads_ = nullptr;
  plan_.steps.push_back(std::move(step));
  return added;
}

Plan PlanBuilder::build() {
  add_inputs();
  for (const Op& op : graph_.ops) {
    if (!is_done(op)) add_op(op);
  }
  add_outputs();
  for (const auto& step : plan_.steps) {
    plan_.shared_bytes = std::max(plan_.shared_bytes, step->shared_bytes());
    plan_.member_bytes = std::max(plan_.member_bytes, step->member_bytes());
  }
  values_.assign_storage(plan_);
  plan_.live_rows = graph_.live_rows;
  return std::move(plan_);
}

void PlanBuilder::add_inputs() {
  for (uint32_t port = 0; port < graph_.inputs.size(); ++port) {
    const uint32_t id = graph_.inputs[port];
    const Value& value = graph_.values[id];
    plan_.input_bytes.push_back(num_elements(value.shape) * size_of(value.dtype));
    values_.place(id, Plan::Place::Input, port);
    values_.writes(id, 0);
    if (value.kind != ValueKind::Input) continue;
    if (value.dtype != DType::Float16 && value.dtype != DType::Float32) continue;
    plan_.float_inputs.push_back({values_.rows(id), values_.elem(id), port});
    if (!float_math_ || value.dtype != DType::Float16) continue;
    auto copy = std::make_unique<CopyStep>();
    copy->from = kF16;
    copy->to = kF32;
    copy->x = values_.rows(id);
    copy->y = values_.rows(values_.add_copy(copy->x, kF32));
    values_.writes(copy->y.value, next_step());
    values_.redirect(id, copy->y.value);
    append(std::move(copy));
  }
}

void PlanBuilder::add_op(const Op& op) {
  if (starts_heads(op)) return add_heads(op);
  switch (op.kind) {
    case OpKind::Linear: return add_linear(op);
    case OpKind::RMSNorm: return add_norm(op);
    case OpKind::FlashAttention: return add_attention(op);
    case OpKind::BatchGather: return add_gather(op);
    case OpKind::SiluMul: return add_silu_mul(op);
    case OpKind::Add: return add_add(op);
    case OpKind::Slice:
    case OpKind::Reshape: return add_view(op);
    case OpKind::Rope:
    case OpKind::KVcache: return;  // starts_heads() takes them all
  }
}

void PlanBuilder::add_linear(const Op& op) {
  auto step = std::make_unique<LinearStep>();
  const int64_t index = next_step();
  uint32_t x = op.inputs[0];
  for (const auto& [output, norm] : norms_) {
    if (output != x) continue;
    x = norm->inputs[0];
    step->norm_weight = weight<float>(norm->inputs[1]);
    step->norm_epsilon = float(norm->attribute("epsilon", 1e-6));
    break;
  }
  const Value& matrix = graph_.values[op.inputs[1]];
  step->elem = values_.elem(x);
  step->x = values_.rows(x);
  step->format = matrix.format;
  step->weights = weight<uint8_t>(op.inputs[1]);
  step->outputs = matrix.shape[0];
  step->inputs = matrix.shape[1];
  if (op.inputs.size() > 2) step->bias = weight<float>(op.inputs[2]);
  step->float_math = float_math_;
  values_.reads(x, index);

  uint32_t y = op.outputs[0];
  const Op* consumer = values_.sole_consumer(y);
  if (consumer != nullptr && consumer->kind == OpKind::SiluMul) {
    step->epilogue = LinearStep::Epilogue::SiluMul;
    y = consumer->outputs[0];
    done_.insert(consumer);
  } else if (consumer != nullptr && consumer->kind == OpKind::Add && consumer->inputs[0] != consumer->inputs[1]) {
    const uint32_t other = consumer->inputs[0] == y ? consumer->inputs[1] : consumer->inputs[0];
    if (values_.produced(other)) {
      step->epilogue = LinearStep::Epilogue::AddResidual;
      step->residual = values_.rows(other);
      values_.reads(other, index);
      y = consumer->outputs[0];
      done_.insert(consumer);
    }
  }
  step->y = values_.rows(y);
  values_.writes(y, index);
  append(std::move(step));
}

// A chain starts at a per-head RMSNorm that feeds a Rope or KVcache, or at a Rope or KVcache by itself.
bool PlanBuilder::starts_heads(const Op& op) const {
  if (op.kind == OpKind::Rope || op.kind == OpKind::KVcache) return true;
  if (op.kind != OpKind::RMSNorm || graph_.values[op.inputs[0]].shape.size() != 4) return false;
  const Op* next = values_.sole_consumer(op.outputs[0]);
  return next != nullptr && (next->kind == OpKind::Rope || next->kind == OpKind::KVcache) &&
         next->inputs[0] == op.outputs[0];
}

void PlanBuilder::add_heads(const Op& first) {
  HeadChain chain;
  const Shape& shape = graph_.values[first.inputs[0]].shape;
  const uint32_t x = first.inputs[0];
  chain.x = values_.rows(x);
  chain.heads = shape[2];
  chain.head_dim = shape[3];
  const Op* op = &first;
  const auto follow = [&](OpKind kind) {
    const Op* next = values_.sole_consumer(op->outputs[0]);
    if (next == nullptr || next->kind != kind || next->inputs[0] != op->outputs[0]) return false;
    done_.insert(next);
    op = next;
    return true;
  };
  if (op->kind == OpKind::RMSNorm) {
    chain.norm_weight = weight<float>(op->inputs[1]);
    chain.norm_epsilon = float(op->attribute("epsilon", 1e-6));
    if (!follow(OpKind::Rope)) follow(OpKind::KVcache);
  }
  if (op->kind == OpKind::Rope) {
    const Value& table = graph_.values[op->inputs[1]];
    chain.cos = weight<std::byte>(op->inputs[1]);
    chain.sin = weight<std::byte>(op->inputs[2]);
    chain.table_elem = table.dtype == DType::Float16 ? kF16 : kF32;
    chain.table_rows = table.shape[0];
    chain.rope_valid.assign(op->inputs.begin() + 3, op->inputs.end());
    for (uint32_t valid : chain.rope_valid) add_length_rule({valid, kNoValue}, chain.x.slot_rows, 0);
    follow(OpKind::KVcache);
  }

  // The pass over the rows that came just before can take this chain too, unless it makes what the chain reads.
  const bool joins = open_heads_ != nullptr && open_heads_->elem == values_.elem(x) &&
                     open_heads_->chains.front().x.rows == chain.x.rows &&
                     open_heads_->chains.front().x.limited == chain.x.limited &&
                     values_.first_step(x) < next_step() - 1;
  const int64_t index = joins ? next_step() - 1 : next_step();
  values_.reads(x, index);
  if (op->kind == OpKind::KVcache) {
    for (size_t slot = 0; slot < op->outputs.size(); ++slot) {
      const uint32_t cache = op->inputs[1 + 3 * slot];
      const SlotLengths lengths{op->inputs[2 + 3 * slot], op->inputs[3 + 3 * slot]};
      const Shape& cache_shape = graph_.values[cache].shape;
      chain.caches.push_back(cache);
      chain.lengths.push_back(lengths);
      chain.cache_elem = values_.elem(cache);
      chain.context = cache_shape[2];
      values_.make_view(op->outputs[slot], cache, 0, num_elements(cache_shape) / cache_shape[1]);
      add_length_rule(lengths, chain.x.slot_rows, chain.context);
    }
  } else {
    chain.y = values_.rows(op->outputs[0]);
    values_.writes(op->outputs[0], index);
  }
  if (!joins) {
    auto step = std::make_unique<HeadsStep>();
    step->elem = values_.elem(x);
    open_heads_ = &append(std::move(step));
  }
  HeadsStep* target = joins ? open_heads_ : static_cast<HeadsStep*>(plan_.steps.back().get());
  target->chains.push_back(std::move(chain));
  open_heads_ = target;
}

void PlanBuilder::add_attention(const Op& op) {
  auto step = std::make_unique<AttentionStep>();
  const Shape& q = graph_.values[op.inputs[0]].shape;
  const Shape& cache = graph_.values[op.inputs[1]].shape;
  step->elem = values_.elem(op.inputs[0]);
  step->cache_elem = values_.elem(op.inputs[1]);
  step->q = values_.rows(op.inputs[0]);
  step->y = values_.rows(op.outputs[0]);
  step->q_heads = q[2];
  step->head_dim = q[3];
  step->kv_heads = cache[1];
  step->context = cache[2];
  if (step->q_heads / step->kv_heads > kMaxHeadsPerKv) {
    fail(ErrorCode::Unsupported, "FlashAttention: ", step->q_heads, " query heads over ", step->kv_heads,
         " KV heads; the CPU backend shares a KV head among at most ", kMaxHeadsPerKv);
  }
  // The default is the fp32 value nearest to 1/sqrt(D).
  const double scale = op.attribute("scale", -1.0);
  step->scale = float(scale > 0 ? scale : 1.0 / std::sqrt(double(step->head_dim)));
  for (size_t i = 1; i + 3 < op.inputs.size(); i += 4) {
    step->k.push_back(op.inputs[i]);
    step->v.push_back(op.inputs[i + 1]);
    step->lengths.push_back({op.inputs[i + 2], op.inputs[i + 3]});
    add_length_rule(step->lengths.back(), step->q.slot_rows, step->context);
  }
  values_.reads(op.inputs[0], next_step());
  values_.writes(op.outputs[0], next_step());
  append(std::move(step));
}

void PlanBuilder::add_norm(const Op& op) {
  const Op* consumer = values_.sole_consumer(op.outputs[0]);
  if (consumer != nullptr && consumer->kind == OpKind::Linear && consumer->inputs[0] == op.outputs[0]) {
    norms_.emplace_back(op.outputs[0], &op);
    // The value is never stored, but a residual Add must not take it for missing.
    return;
  }
  auto step = std::make_unique<RmsNormStep>();
  const uint32_t x = op.inputs[0];
  step->elem = values_.elem(x);
  step->x = values_.rows(x);
  step->y = values_.rows(op.outputs[0]);
  step->weight = weight<float>(op.inputs[1]);
  step->groups = step->x.cols / graph_.values[op.inputs[1]].shape[0];
  step->epsilon = float(op.attribute("epsilon", 1e-6));
  values_.reads(x, next_step());
  values_.writes(op.outputs[0], next_step());
  append(std::move(step));
}

void PlanBuilder::add_add(const Op& op) {
  auto step = std::make_unique<AddStep>();
  step->elem = values_.elem(op.inputs[0]);
  step->a = values_.rows(op.inputs[0]);
  step->b = values_.rows(op.inputs[1]);
  step->y = values_.rows(op.outputs[0]);
  values_.reads(op.inputs[0], next_step());
  values_.reads(op.inputs[1], next_step());
  values_.writes(op.outputs[0], next_step());
  append(std::move(step));
}

void PlanBuilder::add_silu_mul(const Op& op) {
  auto step = std::make_unique<SiluMulStep>();
  step->elem = values_.elem(op.inputs[0]);
  step->x = values_.rows(op.inputs[0]);
  step->y = values_.rows(op.outputs[0]);
  values_.reads(op.inputs[0], next_step());
  values_.writes(op.outputs[0], next_step());
  append(std::move(step));
}

void PlanBuilder::add_gather(const Op& op) {
  auto step = std::make_unique<GatherRowStep>();
  step->elem = values_.elem(op.inputs[0]);
  step->x = values_.rows(op.inputs[0]);
  step->y = values_.rows(op.outputs[0]);
  step->current = op.inputs[1];
  add_length_rule({kNoValue, op.inputs[1]}, step->x.rows, 0);
  values_.reads(op.inputs[0], next_step());
  values_.writes(op.outputs[0], next_step());
  append(std::move(step));
}

void PlanBuilder::add_view(const Op& op) {
  const uint32_t x = op.inputs[0];
  const uint32_t out = op.outputs[0];
  const Rows source = values_.rows(x);
  const int64_t start = op.kind == OpKind::Slice ? op.attribute("start", int64_t{0}) : 0;
  const Rows form = values_.rows(out);
  if (op.kind == OpKind::Reshape && form.rows != source.rows && source.stride != source.cols) {
    fail(ErrorCode::Unsupported, "Reshape of '", graph_.values[x].name, "' from ", to_string(graph_.values[x].shape),
         " to ", to_string(graph_.values[out].shape), ": the CPU backend cannot change the rows of a sliced value");
  }
  if (op.kind == OpKind::Slice && graph_.values[x].shape.size() > 3) {
    fail(ErrorCode::Unsupported, "Slice of '", graph_.values[x].name, "': the CPU backend slices values of rank 3 or less");
  }
  values_.make_view(out, x, start, form.cols);
}

void PlanBuilder::add_outputs() {
  for (uint32_t port = 0; port < graph_.outputs.size(); ++port) {
    const uint32_t id = graph_.outputs[port];
    const Value& value = graph_.values[id];
    if (value.dtype != DType::Float16 && value.dtype != DType::Float32) {
      fail(ErrorCode::Unsupported, "output '", value.name, "' is ", name_of(value.dtype),
           "; the CPU backend produces float16 and float32");
    }
    const Elem declared = value.dtype == DType::Float16 ? kF16 : kF32;
    const bool repeated = std::count(graph_.outputs.begin(), graph_.outputs.begin() + port, id) > 0;
    Rows rows = values_.rows(id);
    if (value.kind == ValueKind::Intermediate && !values_.is_view(id) && !repeated && values_.elem(id) == declared) {
      values_.place(id, Plan::Place::Output, port);
    } else {
      auto copy = std::make_unique<CopyStep>();
      copy->from = values_.elem(id);
      copy->to = declared;
      copy->x = rows;
      const uint32_t target = values_.add_copy(rows, declared);
      values_.place(target, Plan::Place::Output, port);
      copy->y = values_.rows(target);
      values_.reads(id, next_step());
      values_.writes(target, next_step());
      append(std::move(copy));
    }
    const int64_t bytes = num_elements(value.shape) * size_of(value.dtype);
    plan_.outputs.push_back({rows, bytes / rows.rows, bytes});
  }
}

void PlanBuilder::add_length_rule(SlotLengths slot, int64_t tokens, int64_t context) {
  for (const LengthRule& rule : plan_.lengths) {
    if (rule.slot.valid == slot.valid && rule.slot.current == slot.current && rule.context == context) return;
  }
  plan_.lengths.push_back({slot, tokens, context});
}

}  // namespace

Plan build_plan(const Graph& graph, const std::vector<WeightBytes>& weights, bool float_math) {
  return PlanBuilder(graph, weights, float_math).build();
}

}  // namespace tcim_lite::cpu
