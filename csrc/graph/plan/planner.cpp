#include "graph/plan/planner.h"

#include <algorithm>
#include <utility>

#include "base/env.h"
#include "base/error.h"
#include "graph/axis_roles.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/plan.h"

namespace tcim_lite {
namespace {

// Whether each element of the result reads the operand's element at its place.
bool is_dense(const BroadcastSpec& step, const int64_t* strides) {
  int64_t elements = 1;
  for (int axis = step.axes; axis-- > 0; elements *= step.extents[axis]) {
    if (strides[axis] != elements) return false;
  }
  return true;
}

}  // namespace

Plan PlanBuilder::build(const OwnForms& own_forms) {
  add_inputs();
  for (const Op& op : graph_.ops) {
    current_ = &op;
    if (absorbed_.count(&op) == 0) add_op(op);
  }
  current_ = nullptr;
  add_outputs();
  values.assign_ports(plan_);
  values.assign_arena(plan_, own_forms ? own_forms(plan_) : std::vector<OwnForm>());
  find_updates();
  return std::move(plan_);
}

void PlanBuilder::add_inputs() {
  plan_.live_rows = graph_.live_rows;
  for (uint32_t port = 0; port < graph_.inputs.size(); ++port) {
    const uint32_t id = graph_.inputs[port];
    const Value& value = graph_.values[id];
    plan_.input_bytes.push_back(num_elements(value.shape) * size_of(value.dtype));
    values.place(id, Plan::Place::Input, port);
    values.writes(id, 0);
    if (value.kind != ValueKind::Input) continue;
    if (value.dtype != DType::Float16 && value.dtype != DType::Float32) continue;
    plan_.float_inputs.push_back({values.rows(id), values.elem(id), port});
    if (values.rows(id).limited) add_length_rule({kNoValue, graph_.live_rows}, values.rows(id).rows, 0);
    if (numerics_ != Numerics::Float || value.dtype != DType::Float16) continue;
    CopySpec copy;
    copy.from = kF16;
    copy.to = kF32;
    copy.x = values.rows(id);
    copy.y = values.rows(values.add_copy(copy.x, kF32));  // limited as the input is
    values.writes(copy.y.value, next_step());
    values.redirect(id, copy.y.value);
    append(std::move(copy));
  }
}

void PlanBuilder::append(StepSpec step) {
  heads_open_ = std::holds_alternative<HeadsSpec>(step);
  plan_.steps.push_back(std::move(step));
  plan_.step_values.push_back(current_ == nullptr ? kNoValue : current_->outputs[0]);
}

void PlanBuilder::append_gather(Plan::Gather gather) {
  gather.next_step = plan_.steps.size();
  heads_open_ = false;
  plan_.gathers.push_back(gather);
}

Rows PlanBuilder::result(uint32_t y, uint32_t x) {
  values.follows(y, x);
  values.writes(y, next_step());
  return values.rows(y);
}

// With TCIM_LITE_NUMERICS=float states keep their dtype, which only some operands tell from that of the others.
void PlanBuilder::check_state_dtypes(const Op& op) const {
  if (numerics_ != Numerics::Float) return;
  const size_t count = std::min(op.inputs.size(), definition_of(op.kind).state_dtype_from);
  for (size_t i = 0; i < count; ++i) {
    if (!values.is_state(op.inputs[i]) || values.elem(op.inputs[i]) == kF32) continue;
    fail(ErrorCode::Unsupported, name_of(op.kind), " of '", value(op.inputs[i]).name,
         "': with TCIM_LITE_NUMERICS=float a float16 cache is read by attention alone; unset it");
  }
}

void PlanBuilder::add_op(const Op& op) {
  check_state_dtypes(op);
  definition_of(op.kind).plan(*this, op);
}

const Op* PlanBuilder::prologue_norm(uint32_t x) const {
  const auto found = norms_.find(x);
  return found == norms_.end() ? nullptr : found->second;
}

const Op* PlanBuilder::scores_of(uint32_t x) const {
  const auto found = scores_.find(x);
  return found == scores_.end() ? nullptr : found->second;
}

const Op* PlanBuilder::transpose_of(uint32_t x) const {
  const auto found = transposes_.find(x);
  return found == transposes_.end() ? nullptr : found->second;
}

void PlanBuilder::add_outputs() {
  for (uint32_t port = 0; port < graph_.outputs.size(); ++port) {
    const uint32_t id = graph_.outputs[port];
    const Value& value = graph_.values[id];
    if (value.dtype != DType::Float16 && value.dtype != DType::Float32 && value.dtype != DType::Int32) {
      fail(ErrorCode::Unsupported, "output '", value.name, "' is ", name_of(value.dtype),
           "; backends produce float16, float32 and int32");
    }
    // Four bytes are four bytes: an int32 is only ever copied.
    const Elem declared = value.dtype == DType::Float16 ? kF16 : kF32;
    Rows rows = values.rows(id);
    if (!values.is_view(id) && values.elem(id) == declared) {
      values.place(id, Plan::Place::Output, port);
    } else {
      CopySpec copy;
      copy.from = values.elem(id);
      copy.to = declared;
      copy.x = rows;
      const uint32_t target = values.add_copy(rows, declared);
      values.place(target, Plan::Place::Output, port);
      copy.y = values.rows(target);
      values.reads(id, next_step());
      values.writes(target, next_step());
      append(std::move(copy));
    }
    const int64_t bytes = num_elements(value.shape) * size_of(value.dtype);
    plan_.outputs.push_back({rows, bytes / rows.rows, bytes});
  }
}

void PlanBuilder::find_updates() {
  if (!plan_.gathers.empty()) return;  // the time of a step is its index
  for (size_t index = 0; index < plan_.steps.size(); ++index) {
    const StepSpec& spec = plan_.steps[index];
    if (const auto* conv = std::get_if<CausalConvSpec>(&spec)) find_updates(conv->state, conv->new_states, index);
    if (const auto* rule = std::get_if<DeltaRuleSpec>(&spec)) find_updates(rule->state, rule->new_states, index);
    const auto* step = std::get_if<BroadcastSpec>(&spec);
    if (step == nullptr || plan_.storage[step->y].place != Plan::Place::Output) continue;
    plan_.outputs[plan_.storage[step->y].port].over = updated_input(*step, int64_t(index));
  }
}

// Of a step that reads all of a part of `from` before it writes that part of any of `to`.
void PlanBuilder::find_updates(uint32_t from, const std::vector<uint32_t>& to, size_t time) {
  const Plan::Storage& read = plan_.storage[from];
  if (read.place != Plan::Place::Input || plan_.last_use[from] != int64_t(time)) return;
  for (const uint32_t id : to) {
    const Plan::Storage& written = plan_.storage[id];
    if (written.place != Plan::Place::Output) continue;
    Plan::OutputPort& output = plan_.outputs[written.port];
    if (plan_.input_bytes[read.port] == output.bytes) output.over = read.port;
  }
}

// The input port whose elements, all of them, a step reads only where it writes its own, and nobody after it.
uint32_t PlanBuilder::updated_input(const BroadcastSpec& step, int64_t time) const {
  struct Read {
    uint32_t value, port;
    bool dense;
  };
  std::vector<Read> reads;
  const auto add = [&](const Operand& operand, const int64_t* strides) {
    if (!operand.given() || operand.weight || plan_.storage[operand.value].place != Plan::Place::Input) return;
    reads.push_back({operand.value, plan_.storage[operand.value].port, is_dense(step, strides)});
  };
  for (int i = 0; i < 3; ++i) add(step.operands[i], step.strides[i]);
  for (const BroadcastSpec::Then& next : step.then) add(next.operand, next.strides);
  const int64_t bytes = plan_.outputs[plan_.storage[step.y].port].bytes;
  for (const Read& read : reads) {
    const auto is_it = [&](const Read& other) { return other.port == read.port; };
    const bool alone = std::count_if(reads.begin(), reads.end(), is_it) == 1;
    if (read.dense && alone && plan_.input_bytes[read.port] == bytes && plan_.last_use[read.value] == time)
      return read.port;
  }
  return kNoValue;
}

void PlanBuilder::add_length_rule(SlotLengths slot, int64_t tokens, int64_t context) {
  for (LengthRule& rule : plan_.lengths) {
    if (rule.slot.valid != slot.valid || rule.slot.current != slot.current || rule.context != context) continue;
    rule.tokens = std::min(rule.tokens, tokens);
    return;
  }
  plan_.lengths.push_back({slot, tokens, context});
}

void PlanBuilder::add_position_rule(uint32_t positions, int64_t rows) {
  for (const Op& op : graph_.ops) {  // positions of all axes in one input are read as a row
    if (op.kind == OpKind::Reshape && op.outputs[0] == positions) positions = op.inputs[0];
  }
  const Value& input = value(positions);
  const std::string_view role = input.role.name;
  if (input.kind != ValueKind::Input || !(is_axis_role(role) || role == kHeadRole || role == kAxesRole)) return;
  const auto is_same = [&](const PositionRule& rule) { return rule.positions == positions && rule.rows == rows; };
  if (std::any_of(plan_.positions.begin(), plan_.positions.end(), is_same)) return;
  const auto current = std::find_if(graph_.inputs.begin(), graph_.inputs.end(), [&](uint32_t id) {
    return value(id).role.name == "current_length" && value(id).role.slot == input.role.slot;
  });
  const int64_t axes = input.shape.size() == 3 ? input.shape[0] : 1;
  plan_.positions.push_back(
      {positions, current == graph_.inputs.end() ? kNoValue : *current, axes, num_elements(input.shape) / axes, rows});
}

Plan build_plan(const Graph& graph, Numerics numerics, Joins joins, const OwnForms& own_forms) {
  return PlanBuilder(graph, numerics, joins).build(own_forms);
}

Numerics wanted_numerics() {
  const auto profile = env_text("TCIM_LITE_NUMERICS");
  if (!profile) return Numerics::AsCompiled;
  if (*profile == "float") return Numerics::Float;
  if (*profile == "hidden_exponent") return Numerics::HiddenExponent;
  fail(ErrorCode::Argument, "TCIM_LITE_NUMERICS='", *profile, "': expected 'float', 'hidden_exponent' or nothing");
}

}  // namespace tcim_lite
