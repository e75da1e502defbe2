#include "graph/plan/planner.h"

#include <algorithm>
#include <utility>

#include "base/env.h"
#include "base/error.h"
#include "graph/plan/plan.h"

namespace tcim_lite {

Plan PlanBuilder::build() {
  add_inputs();
  for (const Op& op : graph_.ops) {
    if (!is_done(op)) add_op(op);
  }
  add_outputs();
  values_.assign_storage(plan_);
  return std::move(plan_);
}

void PlanBuilder::add_inputs() {
  plan_.live_rows = graph_.live_rows;
  for (uint32_t port = 0; port < graph_.inputs.size(); ++port) {
    const uint32_t id = graph_.inputs[port];
    const Value& value = graph_.values[id];
    plan_.input_bytes.push_back(num_elements(value.shape) * size_of(value.dtype));
    values_.place(id, Plan::Place::Input, port);
    values_.writes(id, 0);
    if (value.kind != ValueKind::Input) continue;
    if (value.dtype != DType::Float16 && value.dtype != DType::Float32) continue;
    plan_.float_inputs.push_back({values_.rows(id), values_.elem(id), port});
    if (values_.rows(id).limited) add_length_rule({kNoValue, graph_.live_rows}, values_.rows(id).rows, 0);
    if (!float_math_ || value.dtype != DType::Float16) continue;
    CopySpec copy;
    copy.from = kF16;
    copy.to = kF32;
    copy.x = values_.rows(id);
    copy.y = values_.rows(values_.add_copy(copy.x, kF32));  // limited as the input is
    values_.writes(copy.y.value, next_step());
    values_.redirect(id, copy.y.value);
    append(std::move(copy));
  }
}

// With TCIM_LITE_NUMERICS=float the caches keep their dtype, which only KVcache and attention tell from the others'.
void PlanBuilder::check_cache_readers(const Op& op) const {
  const bool is_view = op.kind == OpKind::Slice || op.kind == OpKind::Reshape;
  if (!float_math_ || is_view || op.kind == OpKind::KVcache) return;
  const size_t count = op.kind == OpKind::FlashAttention ? 1 : op.inputs.size();
  for (size_t i = 0; i < count; ++i) {
    if (!values_.is_cache(op.inputs[i]) || values_.elem(op.inputs[i]) == kF32) continue;
    fail(ErrorCode::Unsupported, name_of(op.kind), " of '", graph_.values[op.inputs[i]].name,
         "': with TCIM_LITE_NUMERICS=float a float16 cache is read by attention alone; unset it");
  }
}

void PlanBuilder::add_op(const Op& op) {
  check_cache_readers(op);
  if (starts_heads(op)) return add_heads(op);
  switch (op.kind) {
    case OpKind::Linear:
      return add_linear(op);
    case OpKind::RMSNorm:
      return add_norm(op);
    case OpKind::FlashAttention:
      return add_attention(op);
    case OpKind::BatchGather:
      return add_gather(op);
    case OpKind::SiluMul:
      return add_silu_mul(op);
    case OpKind::Add:
      return add_add(op);
    case OpKind::Slice:
    case OpKind::Reshape:
      return add_view(op);
    case OpKind::AllGather:
      return add_all_gather(op);
    case OpKind::Rope:
    case OpKind::KVcache:
      return;  // starts_heads() takes them all
  }
}

void PlanBuilder::add_view(const Op& op) {
  const uint32_t x = op.inputs[0];
  const uint32_t out = op.outputs[0];
  const Rows source = values_.rows(x);
  const int64_t start = op.kind == OpKind::Slice ? op.attribute("start", int64_t{0}) : 0;
  const Rows form = values_.rows(out);
  const bool dense = source.stride == source.cols && !source.limited;
  if (op.kind == OpKind::Reshape && form.rows != source.rows && !dense) {
    fail(ErrorCode::Unsupported, "Reshape of '", graph_.values[x].name, "' from ", to_string(graph_.values[x].shape),
         " to ", to_string(graph_.values[out].shape),
         ": the planner cannot change the rows of a sliced value or of one with live rows");
  }
  if (op.kind == OpKind::Slice && graph_.values[x].shape.size() > 3) {
    fail(ErrorCode::Unsupported, "Slice of '", graph_.values[x].name, "': the planner slices values of rank 3 or less");
  }
  values_.make_view(out, x, start, form.cols);
}

void PlanBuilder::add_outputs() {
  for (uint32_t port = 0; port < graph_.outputs.size(); ++port) {
    const uint32_t id = graph_.outputs[port];
    const Value& value = graph_.values[id];
    if (value.dtype != DType::Float16 && value.dtype != DType::Float32) {
      fail(ErrorCode::Unsupported, "output '", value.name, "' is ", name_of(value.dtype),
           "; backends produce float16 and float32");
    }
    const Elem declared = value.dtype == DType::Float16 ? kF16 : kF32;
    Rows rows = values_.rows(id);
    if (!values_.is_view(id) && values_.elem(id) == declared) {
      values_.place(id, Plan::Place::Output, port);
    } else {
      CopySpec copy;
      copy.from = values_.elem(id);
      copy.to = declared;
      copy.x = rows;
      const uint32_t target = values_.add_copy(rows, declared);
      values_.place(target, Plan::Place::Output, port);
      copy.y = values_.rows(target);
      values_.reads(id, next_step());
      values_.writes(target, next_step());
      append(std::move(copy));
    }
    const int64_t bytes = num_elements(value.shape) * size_of(value.dtype);
    plan_.outputs.push_back({rows, bytes / rows.rows, bytes});
  }
}

void PlanBuilder::add_length_rule(SlotLengths slot, int64_t tokens, int64_t context) {
  for (LengthRule& rule : plan_.lengths) {
    if (rule.slot.valid != slot.valid || rule.slot.current != slot.current || rule.context != context) continue;
    rule.tokens = std::min(rule.tokens, tokens);
    return;
  }
  plan_.lengths.push_back({slot, tokens, context});
}

Plan build_plan(const Graph& graph, bool float_math) { return PlanBuilder(graph, float_math).build(); }

bool float_math_wanted() {
  const auto profile = env_text("TCIM_LITE_NUMERICS");
  if (!profile) return false;
  if (*profile == "float") return true;
  fail(ErrorCode::Argument, "TCIM_LITE_NUMERICS='", *profile, "': expected 'float' or nothing");
}

}  // namespace tcim_lite
