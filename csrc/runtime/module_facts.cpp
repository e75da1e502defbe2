// Module: what listeners hear of it.
#include "runtime/loaded.h"
#include "runtime/module.h"

namespace tcim_lite {

void Module::describe(CallEvent& event) const {
  event.module = handle_;
  const std::lock_guard lock(mutex_);
  if (loaded_ == nullptr) return;
  event.stream = loaded_->stream->handle();
}

namespace {

SlotFacts facts_of(const SlotTable& slots, size_t index, bool is_input, ApiVersion version) {
  const Slot& slot = slots[index];
  return {is_input, index, slot.name(), TensorFacts(slot.info, slot.buffer.get(), slot.offset),
          !is_input || set_input_binds(version, slot.is_dummy)};
}

void describe_slot(CallEvent& event, SlotTable& slots, std::string_view name, bool is_input, ApiVersion version) {
  if (const Slot* slot = slots.find(name)) event.slot = facts_of(slots, size_t(slot - &slots[0]), is_input, version);
}

}  // namespace

void Module::describe_input(CallEvent& event, std::string_view name) const {
  describe(event);
  event.argument = name;
  const std::lock_guard lock(mutex_);
  if (loaded_ != nullptr) describe_slot(event, loaded_->inputs, name, true, loaded_->version);
}

void Module::describe_output(CallEvent& event, std::string_view name) const {
  describe(event);
  event.argument = name;
  const std::lock_guard lock(mutex_);
  if (loaded_ != nullptr) describe_slot(event, loaded_->outputs, name, false, loaded_->version);
}

void describe_result(CallEvent& event, const std::shared_ptr<Module>& module) {
  const Module::Loaded& loaded = *module->loaded_;
  ModuleFacts& facts = event.loaded.emplace();
  event.module = facts.module = module->handle_;
  facts.file = loaded.program->file().label();
  facts.graph = &loaded.program->content().graph();
  for (size_t i = 0; i < loaded.inputs.size(); ++i)
    facts.inputs.push_back(facts_of(loaded.inputs, i, true, loaded.version));
  for (size_t i = 0; i < loaded.outputs.size(); ++i)
    facts.outputs.push_back(facts_of(loaded.outputs, i, false, loaded.version));
}

}  // namespace tcim_lite
