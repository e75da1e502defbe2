// Module: what listeners and profilers are told about it.
#include "runtime/loaded.h"
#include "runtime/module.h"

namespace tcim_lite {

void Module::describe(CallEvent& event) const {
  event.module = handle_;
  const std::lock_guard lock(mutex_);
  if (loaded_ == nullptr) return;
  event.stream = loaded_->stream->handle();
  event.program = loaded_->program;
}

namespace {

PortFacts facts_of(const PortTable& ports, size_t index, bool is_input, ApiVersion version) {
  const Port& port = ports[index];
  return {is_input, index, port.name(), TensorFacts(port.info, port.buffer.get(), port.offset),
          !is_input || set_input_binds(version, port.is_dummy)};
}

}  // namespace

void Module::describe(CallEvent& event, Side side, std::string_view name) const {
  describe(event);
  event.argument = name;
  const std::lock_guard lock(mutex_);
  if (loaded_ == nullptr) return;
  PortTable& ports = loaded_->ports(side);
  if (const Port* port = ports.find(name))
    event.port = facts_of(ports, size_t(port - &ports[0]), side == Side::Input, loaded_->version);
}

void describe_result(CallEvent& event, const std::shared_ptr<Module>& module) {
  const Module::Loaded& loaded = *module->loaded_;
  ModuleFacts& facts = event.loaded.emplace();
  event.module = facts.module = module->handle_;
  event.stream = loaded.stream->handle();
  event.program = loaded.program;
  facts.file = loaded.program->file().label();
  facts.graph = &loaded.program->parts().front();
  for (size_t i = 0; i < loaded.inputs.size(); ++i)
    facts.inputs.push_back(facts_of(loaded.inputs, i, true, loaded.version));
  for (size_t i = 0; i < loaded.outputs.size(); ++i)
    facts.outputs.push_back(facts_of(loaded.outputs, i, false, loaded.version));
}

// What other threads have queued since is waited for with the lock: a run would meet counters that change.
void Module::time_steps(bool on) {
  finish_runs("time_steps");
  const std::lock_guard lock(mutex_);
  const Loaded& loaded = this->loaded("time_steps");
  loaded.stream->wait(loaded.ticket);
  loaded.program->executable().time_steps(on);
}

std::vector<std::tuple<std::string, std::string, double>> Module::step_times() {
  finish_runs("step_times");
  const std::lock_guard lock(mutex_);
  const Loaded& loaded = this->loaded("step_times");
  loaded.stream->wait(loaded.ticket);
  std::vector<std::tuple<std::string, std::string, double>> times;
  for (const StepTime& time : loaded.program->executable().step_times()) {
    times.emplace_back(time.name.op, time.name.form, time.seconds);
  }
  return times;
}

}  // namespace tcim_lite
