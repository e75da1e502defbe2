#include "layers/strict/call_rules.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/plan/cache_rows.h"

namespace tcim_lite::layers {
namespace {

bool is(const CallEvent& event, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), event.name) != names.end();
}

int64_t filled_rows(const CacheRows* rows) {
  if (rows == nullptr) return 0;
  return std::find(rows->begin(), rows->end(), uint64_t{0}) - rows->begin();
}

bool is_used_elsewhere(Shadow& shadow, uint64_t module, uint64_t buffer) {
  for (const auto& [handle, other] : shadow.modules()) {
    if (handle == module || other.released) continue;
    for (const PortShadow& port : other.inputs) {
      if (port.memory.buffer == buffer) return true;
    }
  }
  return false;
}

void check_binding(Shadow& shadow, const CallEvent& event, const ModuleShadow& module, Found& found) {
  if (!event.binds || !event.port) return;
  const PortFacts& facts = *event.port;
  if (event.tensor->buffer == 0) {
    found.emplace_back("S-102", concat("Input '", facts.name, "' of ", module.file, " was given it."));
    return;
  }
  if (is(event, {"Module.set_input"}) && !facts.set_input_binds) {
    found.emplace_back("S-105", concat("Input '", facts.name, "' of ", module.file, "."));
    return;
  }
  if (!facts.is_input || event.tensor->buffer == facts.memory.buffer) return;
  const PortShadow& port = module.inputs[facts.index];
  if (port.own != facts.memory.buffer || is_used_elsewhere(shadow, event.module, port.own)) return;
  for (const CachePorts& ports : module.caches) {
    if (ports.cache != facts.index) continue;
    const int64_t had = filled_rows(shadow.rows(module, ports));
    BufferShadow* const next = shadow.buffer(event.tensor->buffer);
    if (next == nullptr) return;
    const auto at = next->caches.find(event.tensor->offset);
    const int64_t gets = at != next->caches.end() ? filled_rows(&at->second) : next->host_write != 0 ? had : 0;
    if (had > gets) {
      found.emplace_back("S-103", concat("Cache '", facts.name, "' of ", module.file, " held ", had,
                                         " rows, its new memory ", gets, "."));
    }
  }
}

// Elements of an 8-bit array whose top bit is set.
bool has_top_bit(const ArrayView& array) {
  std::vector<int64_t> index(array.shape.size(), 0);
  for (int64_t left = array.elements(); left > 0; --left) {
    const std::byte* element = array.data;
    for (size_t axis = 0; axis < index.size(); ++axis) element += index[axis] * array.strides[axis];
    if ((*element & std::byte{0x80}) != std::byte{0}) return true;
    for (size_t axis = index.size(); axis-- > 0 && ++index[axis] == array.shape[axis];) index[axis] = 0;
  }
  return false;
}

void check_dtype(const CallEvent& event, Found& found) {
  if (event.values == nullptr) return;
  const DType from = event.values->dtype;
  const std::optional<DType> to = event.port     ? event.port->memory.dtype
                                  : event.tensor ? event.tensor->dtype
                                                 : event.dtype;
  const bool reinterpreted =
      to && ((from == DType::UInt8 && *to == DType::Int8) || (from == DType::Int8 && *to == DType::UInt8));
  if (!reinterpreted || !has_top_bit(*event.values)) return;
  found.emplace_back("S-501", concat(event.port ? "Input '" + event.port->name + "'" : std::string("The tensor"),
                                     " is ", name_of(*to), ", the values ", name_of(from), "."));
}

// Arrays may have other axes than what they fill, and are taken in memory order: with the same axes in another order,
// such as [224, 224, 3] for [1, 3, 224, 224], every element would be right and in the wrong place.
void check_axes(const CallEvent& event, Found& found) {
  const TensorFacts* const target = event.port ? &event.port->memory : event.info ? &*event.info : nullptr;
  if (event.array == nullptr || target == nullptr) return;
  Shape given(event.array->shape.begin(), event.array->shape.end()), wanted = target->shape;
  for (Shape* const shape : {&given, &wanted}) std::erase(*shape, 1);
  if (given == wanted || !std::is_permutation(given.begin(), given.end(), wanted.begin(), wanted.end())) return;
  const Shape shape(event.array->shape.begin(), event.array->shape.end());
  found.emplace_back("S-502", concat(event.port ? "Input '" + event.port->name + "'" : std::string("The tensor"),
                                     " is ", to_string(target->shape), ", the array ", to_string(shape), "."));
}

void check_memory(Shadow& shadow, const CallEvent& event, ModuleShadow* module, Found& found) {
  const bool reads_output = event.reads == Memory::Port && module != nullptr && event.port;
  const TensorFacts* const read = reads_output || event.reads != Memory::Port ? event.facts(event.reads) : nullptr;
  if (read != nullptr) {
    if (const ModuleShadow* user = reads_output && module->pending ? module : shadow.user_of(read->buffer, true)) {
      found.emplace_back("S-301", concat("A run of ", user->file, " that writes it is queued."));
      shadow.synced(user->stream);
      return;
    }
    bool is_output = reads_output;
    for (const auto& [handle, each] : shadow.modules()) {
      for (const PortShadow& port : each.outputs) is_output |= port.own == read->buffer;
    }
    // A new tensor's to_host is how vendor code makes a tensor on the host.
    if ((is_output || is(event, {"Tensor.numpy"})) && shadow.is_unwritten(*read)) {
      found.emplace_back("S-403", reads_output ? concat("Output '", event.port->name, "' of ", module->file, ".")
                                               : std::string("A tensor on a device."));
    }
  }
  const TensorFacts* const target = event.facts(event.writes);
  if (target == nullptr) return;
  if (const ModuleShadow* user = shadow.user_of(target->buffer, false)) {
    found.emplace_back("S-302", concat("A run of ", user->file, " that uses it is queued."));
    shadow.synced(user->stream);
  }
}

// What a run writes must not lie over something else that it writes. An output may lie over an ordinary input, which is
// read before (C-9); a state is no output, so no output may lie over one.
void check_written(const ModuleShadow& module, Found& found) {
  std::vector<const PortShadow*> written;
  for (const PortShadow& port : module.inputs) {
    if (port.is_state) written.push_back(&port);
  }
  for (const PortShadow& port : module.outputs) written.push_back(&port);
  std::stable_sort(written.begin(), written.end(), [](const PortShadow* a, const PortShadow* b) {
    return std::pair(a->memory.buffer, a->memory.offset) < std::pair(b->memory.buffer, b->memory.offset);
  });
  for (size_t i = 1; i < written.size(); ++i) {
    const PortShadow &one = *written[i - 1], &other = *written[i];
    const uint64_t end = one.memory.offset + one.memory.span_bytes;
    if (one.memory.buffer != other.memory.buffer || other.memory.offset >= end) continue;
    found.emplace_back(one.is_state && other.is_state ? "S-104" : "S-106",
                       concat("'", one.name, "' and '", other.name, "' of ", module.file, "."));
    return;
  }
}

void check_run_call(Shadow& shadow, const CallEvent& event, const ModuleShadow& module, Found& found) {
  for (const PortShadow& port : module.inputs) {
    if (port.memory.buffer != 0) continue;
    found.emplace_back("S-101", concat("Input '", port.name, "' of ", module.file, "."));
    return;
  }
  check_written(module, found);
  if (!found.empty()) return;
  for (const auto& entry : shadow.modules()) {
    const ModuleShadow& other = entry.second;
    if (entry.first == event.module || !other.pending || other.stream == event.stream) continue;
    const auto clash = [&](const PortShadow& port, bool writes) {
      const auto use = other.used.find(port.memory.buffer);
      if (use == other.used.end() || !(writes || use->second)) return false;
      found.emplace_back("S-303",
                         concat("'", port.name, "' of ", module.file, ", in a queued run of ", other.file, "."));
      return true;
    };
    for (const PortShadow& port : module.inputs) {
      if (clash(port, port.is_state)) return;
    }
    for (const PortShadow& port : module.outputs) {
      if (clash(port, true)) return;
    }
  }
}

// Whether the rows were set since the last run but no length was, although the cache holds tokens.
bool lengths_are_stale(Shadow& shadow, const ModuleShadow& module) {
  if (module.last_run == 0) return false;
  bool new_rows = false, has_length = false;
  for (const PortShadow& port : module.inputs) {
    if (port.is_read && !port.is_state && !port.is_length) new_rows |= shadow.set_time(port) > module.last_run;
  }
  for (const CachePorts& ports : module.caches) {
    if (!ports.valid) continue;
    has_length = true;
    if (shadow.set_time(module.inputs[*ports.valid]) > module.last_run) return false;
  }
  return new_rows && has_length;
}

}  // namespace

Found check_call(Shadow& shadow, const CallEvent& event) {
  Found found;
  ModuleShadow* const module = shadow.module(event.module);
  if (module != nullptr && module->released && !is(event, {"Module.release", "Module.delete"})) {
    found.emplace_back("S-304", concat(module->file, "."));
    return found;
  }
  if (module != nullptr) check_binding(shadow, event, *module, found);
  if (module != nullptr && is(event, {"Module.run"})) check_run_call(shadow, event, *module, found);
  check_dtype(event, found);
  check_axes(event, found);
  check_memory(shadow, event, module, found);
  return found;
}

Found check_error(const CallEvent& event) {
  Found found;
  if (event.error == ErrorCode::Internal) found.emplace_back("S-901", concat("It said: ", event.error_text));
  if (event.error == ErrorCode::Unsupported) found.emplace_back("S-902", concat("It said: ", event.error_text));
  if (event.error_text.find(kOddCacheRow) != std::string::npos)
    found.emplace_back("S-404", concat("It said: ", event.error_text));
  return found;
}

void queue_run(Shadow& shadow, const CallEvent& event, const std::string& site) {
  ModuleShadow* const module = shadow.module(event.module);
  if (module == nullptr) return;
  module->queue.push_back({event.call, site, event.rounds.value_or(1), lengths_are_stale(shadow, *module)});
  module->last_run = shadow.tick();
}

void learn_failure(Shadow& shadow, const CallEvent& event) {
  // The call waited, and raises the error of queued work.
  if (is(event, {"Module.sync"}) && event.error != ErrorCode::Aborted) shadow.synced(event.stream);
  ModuleShadow* const module = shadow.module(event.module);
  if (module == nullptr || !is(event, {"Module.run"})) return;
  std::erase_if(module->queue, [&](const QueuedRun& run) { return run.call == event.call; });
}

void learn(Shadow& shadow, const CallEvent& event) {
  if (event.loaded) return shadow.add_module(*event.loaded);
  const TensorFacts* const written = event.facts(event.writes);
  if (written != nullptr) shadow.host_write(*written);
  // The caller may write through the pointer.
  if (is(event, {"Tensor.data"})) shadow.host_write(*event.self);
  ModuleShadow* const module = shadow.module(event.module);
  if (module == nullptr) return;
  if (event.port && (event.binds || written != nullptr)) {
    PortShadow& port = (event.port->is_input ? module->inputs : module->outputs)[event.port->index];
    if (port.own == 0 && !event.binds) port.own = event.port->memory.buffer;
    port.memory = event.port->memory;
    port.set_at = shadow.tick();
    port.sink = 0;
  } else if (event.port && is(event, {"Module.set_output"})) {
    module->outputs[event.port->index].sink = event.tensor->buffer;
  }
  if (is(event, {"Module.run"})) {
    if (*event.sync) return shadow.synced(event.stream);
    module->pending = true;
    module->stream = event.stream;
    for (const PortShadow& port : module->inputs) module->used[port.memory.buffer] |= port.is_state;
    for (const PortShadow& port : module->outputs) {
      module->used[port.memory.buffer] = true;
      if (port.sink != 0) module->used[port.sink] = true;
    }
  }
  if (is(event, {"Module.sync"})) shadow.synced(event.stream);
  if (is(event, {"Module.set_stream", "Module.release"})) {
    module->pending = false;
    module->used.clear();
  }
  if (is(event, {"Module.release"})) module->released = true;
  if (is(event, {"Module.delete"})) shadow.forget_module(event.module);
}

}  // namespace tcim_lite::layers
