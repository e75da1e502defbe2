#include "layers/strict/shadow.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "graph/axis_roles.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite::layers {

void Written::add(uint64_t begin, uint64_t end) {
  if (begin >= end) return;
  auto at = ranges_.upper_bound(begin);
  if (at != ranges_.begin() && std::prev(at)->second >= begin) --at;
  while (at != ranges_.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = ranges_.erase(at);
  }
  ranges_.emplace(begin, end);
}

bool Written::covers(uint64_t begin, uint64_t end) const {
  const auto after = ranges_.upper_bound(begin);
  return begin >= end || (after != ranges_.begin() && std::prev(after)->second >= end);
}

bool Written::touches(uint64_t begin, uint64_t end) const {
  const auto after = ranges_.lower_bound(end);
  return after != ranges_.begin() && std::prev(after)->second > begin;
}

void Shadow::add_buffer(const std::shared_ptr<Buffer>& buffer, Content content) {
  prune();
  BufferShadow& shadow = buffers_[buffer->handle()];
  shadow.memory = buffer;
  shadow.content = content;
  shadow.bytes = buffer->bytes();
}

// There is no event when memory is freed: its last owner may be any thread at any time.
void Shadow::prune() {
  if (buffers_.size() < prune_at_) return;
  std::erase_if(buffers_, [](const auto& each) { return each.second.memory.expired(); });
  prune_at_ = std::max<size_t>(256, 2 * buffers_.size());
}

BufferShadow* Shadow::buffer(uint64_t handle) {
  const auto found = buffers_.find(handle);
  return found == buffers_.end() ? nullptr : &found->second;
}

void Shadow::host_write(const TensorFacts& target) {
  BufferShadow* const shadow = buffer(target.buffer);
  if (shadow == nullptr) return;
  shadow->written.add(target.offset, target.offset + target.span_bytes);
  shadow->host_write = tick();
  // Finding the rows of a part of the memory would need its strides, so all rows count as written.
  for (auto& [offset, rows] : shadow->caches) std::fill(rows.begin(), rows.end(), clock_);
}

namespace {

std::optional<size_t> port_of(const Graph& graph, uint32_t value) {
  const auto found = std::find(graph.inputs.begin(), graph.inputs.end(), value);
  if (found == graph.inputs.end()) return std::nullopt;
  return size_t(found - graph.inputs.begin());
}

std::vector<PortShadow> ports_of(const std::vector<PortFacts>& facts) {
  std::vector<PortShadow> ports;
  for (const PortFacts& each : facts) {
    PortShadow& port = ports.emplace_back();
    port.name = each.name;
    port.memory = each.memory;
    port.own = each.memory.buffer;
  }
  return ports;
}

// By batch slot: the inputs that say where its tokens are; empty for a graph that counts from the valid length on.
std::vector<std::optional<size_t>> given_positions(const Graph& graph) {
  std::vector<std::optional<size_t>> ports;
  for (const Op& op : graph.ops) {
    if (op.kind != OpKind::Rope || op.find("positions") == nullptr) continue;
    for (size_t i = 3; i < op.inputs.size(); ++i) ports.push_back(port_of(graph, op.inputs[i]));
    break;
  }
  return ports;
}

// Whether it is what a layer of linear attention hands from run to run. "conv_state_2" is the state after token 2 of a
// run.
void describe_linear_state(const Value& value, PortShadow& port) {
  static constexpr std::string_view kRoles[] = {"conv_state", "conv_state_q", "conv_state_k", "conv_state_v",
                                                "recurrent_state"};
  std::string_view name = value.role.name;
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  int64_t step = 0;
  const bool has_step = digits > 0 && name[digits - 1] == '_' &&
                        std::from_chars(name.data() + digits, name.data() + name.size(), step).ec == std::errc();
  if (has_step) name = name.substr(0, digits - 1);
  port.is_linear_state = std::find(std::begin(kRoles), std::end(kRoles), name) != std::end(kRoles);
  if (port.is_linear_state && has_step) port.step = step;
  port.slot = value.role.slot;
}

// The input that has the role for the tokens of a slot.
std::optional<size_t> port_with(const Graph& graph, std::string_view name, int32_t slot) {
  for (size_t port = 0; port < graph.inputs.size(); ++port) {
    const Role& role = graph.values[graph.inputs[port]].role;
    if (role.name == name && role.slot == slot) return port;
  }
  return std::nullopt;
}

// The inputs that say where the tokens of a slot are along each axis.
std::vector<size_t> axes_of(const Graph& graph, int32_t slot) {
  std::vector<size_t> ports;
  for (const std::string_view axis : {kAxisRoles[0], kAxisRoles[1], kAxisRoles[2], kAxesRole}) {
    if (const auto port = port_with(graph, axis, slot)) ports.push_back(*port);
  }
  return ports;
}

}  // namespace

void Shadow::add_module(const ModuleFacts& facts) {
  ModuleShadow& module = modules_[facts.module];
  module.file = facts.file;
  module.inputs = ports_of(facts.inputs);
  module.outputs = ports_of(facts.outputs);
  const Graph& graph = *facts.graph;
  for (size_t port = 0; port < graph.inputs.size(); ++port) {
    module.inputs[port].is_state = graph.values[graph.inputs[port]].kind == ValueKind::State;
    describe_linear_state(graph.values[graph.inputs[port]], module.inputs[port]);
  }
  for (size_t port = 0; port < graph.outputs.size(); ++port) {
    describe_linear_state(graph.values[graph.outputs[port]], module.outputs[port]);
  }
  const auto positions = given_positions(graph);
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::Resizer && op.inputs.size() > 2) {
      if (const auto port = port_of(graph, op.inputs[0])) module.inputs[*port].is_cropped = true;
    }
    for (const uint32_t value : op.inputs) {
      if (const auto port = value == kNoValue ? std::nullopt : port_of(graph, value)) {
        module.inputs[*port].is_read = true;
      }
    }
    size_t slot = 0;
    for (const StateOperand& state : states_of(op)) {
      const auto given = slot < positions.size() ? positions[slot] : std::nullopt;
      ++slot;
      if (state.valid == kNoOperand) continue;  // written whole
      // The rows that go into it: [B, T, ...].
      const Shape& rows = graph.values[op.inputs[0]].shape;
      module.batch = rows[0];
      const auto cache = port_of(graph, op.inputs[state.input]);
      if (!cache) continue;
      CachePorts ports{*cache,
                       port_of(graph, op.inputs[state.valid]),
                       port_of(graph, op.inputs[state.current]),
                       given,
                       axes_of(graph, int32_t(slot) - 1),
                       port_with(graph, kLinearMaskRole, int32_t(slot) - 1),
                       int32_t(slot) - 1,
                       rows[1],
                       graph.values[op.inputs[state.input]].shape[2]};
      for (const auto& length : {ports.valid, ports.current}) {
        if (length) module.inputs[*length].is_length = true;
      }
      module.caches.push_back(ports);
    }
  }
}

ModuleShadow* Shadow::module(uint64_t handle) {
  const auto found = modules_.find(handle);
  return found == modules_.end() ? nullptr : &found->second;
}

const ModuleShadow* Shadow::user_of(uint64_t buffer, bool written) const {
  if (buffer == 0) return nullptr;
  for (const auto& [handle, module] : modules_) {
    if (!module.pending) continue;
    const auto use = module.used.find(buffer);
    if (use != module.used.end() && (use->second || !written)) return &module;
  }
  return nullptr;
}

void Shadow::synced(uint64_t stream) {
  for (auto& [handle, module] : modules_) {
    if (module.stream != stream) continue;
    module.pending = false;
    module.used.clear();
  }
}

CacheRows* Shadow::rows(const ModuleShadow& module, const CachePorts& ports) {
  const TensorFacts& memory = module.inputs[ports.cache].memory;
  BufferShadow* const shadow = buffer(memory.buffer);
  if (shadow == nullptr) return nullptr;
  CacheRows& rows = shadow->caches[memory.offset];
  if (rows.empty()) {
    rows.assign(size_t(ports.context), shadow->host_write);
  }
  rows.resize(size_t(ports.context));
  return &rows;
}

std::optional<int64_t> Shadow::tokens_of(const TensorFacts& state) {
  const BufferShadow* const shadow = buffer(state.buffer);
  if (shadow == nullptr) return std::nullopt;
  const auto mark = shadow->states.find(state.offset);
  if (mark != shadow->states.end()) {
    return mark->second.time > shadow->host_write ? std::optional(mark->second.tokens) : std::nullopt;
  }
  const bool fresh = shadow->host_write == 0 && !shadow->written.covers(state.offset, state.offset + state.span_bytes);
  return fresh ? std::optional<int64_t>(0) : std::nullopt;
}

void Shadow::learn_state(const TensorFacts& state, int64_t tokens) {
  if (BufferShadow* const shadow = buffer(state.buffer)) shadow->states[state.offset] = {tokens, tick()};
}

uint64_t Shadow::set_time(const PortShadow& port) {
  const BufferShadow* const shadow = buffer(port.memory.buffer);
  return std::max(port.set_at, shadow == nullptr ? 0 : shadow->host_write);
}

bool Shadow::is_unset(const PortShadow& port, const TensorFacts& memory) {
  const BufferShadow* const shadow = port.is_cropped ? buffer(memory.buffer) : nullptr;
  if (shadow != nullptr && shadow->written.touches(memory.offset, memory.offset + memory.span_bytes)) return false;
  return is_unwritten(memory);
}

bool Shadow::is_unwritten(const TensorFacts& memory) {
  const BufferShadow* const shadow = buffer(memory.buffer);
  return shadow != nullptr && shadow->content != Content::Zero &&
         !shadow->written.covers(memory.offset, memory.offset + memory.span_bytes);
}

}  // namespace tcim_lite::layers
