#include <span>
#include <utility>

#include "base/error.h"
#include "facade/access.h"
#include "facade/report.h"

namespace tcim {

using namespace internal;

namespace {

using tcim_lite::ErrorCode;
using tcim_lite::fail;

std::span<const std::byte> model_bytes(const void* data, int64_t size) {
  if (data == nullptr || size <= 0) {
    fail(ErrorCode::Argument, "a model of ", size, " bytes at ", data, ": expected its bytes; a path is a std::string");
  }
  return {static_cast<const std::byte*>(data), size_t(size)};
}

Module load(const char* what, const Module::Option& option, const std::string& path) {
  std::shared_ptr<tcim_lite::Module> core;
  const Status status = guarded(what, [&] { core = tcim_lite::Module::load(path, Access::load_options(option)); });
  return Access::module(status, std::move(core));
}

Module load(const char* what, const Module::Option& option, const void* data, int64_t size) {
  std::shared_ptr<tcim_lite::Module> core;
  const Status status =
      guarded(what, [&] { core = tcim_lite::Module::load(model_bytes(data, size), Access::load_options(option)); });
  return Access::module(status, std::move(core));
}

}  // namespace

Module internal::Access::module(Status status, std::shared_ptr<tcim_lite::Module> core) {
  Module module;
  module.impl_ = std::make_shared<ModuleState>();
  module.impl_->status = status;
  module.impl_->core = std::move(core);
  return module;
}

// A failed load takes nothing away.
Status internal::Access::replace(Module& module, Module loaded) {
  const Status status = loaded.GetInitStatus();
  if (loaded || !module) module.impl_ = std::move(loaded.impl_);
  return status;
}

tcim_lite::Module& internal::Access::core(const Module& module) {
  if (!module) fail(ErrorCode::State, "Status.UNINITIALIZED: no model is loaded in this module; call LoadModel first");
  return *module.impl_->core;
}

TensorInfo internal::Access::port_info(ModuleState& module, bool input, const std::string& name) {
  const tcim_lite::TensorInfo info = input ? module.core->input_info(name) : module.core->output_info(name);
  const std::lock_guard lock(module.mutex);
  TensorInfo& known = (input ? module.inputs : module.outputs)[info.name];
  if (known.impl_ == nullptr) known = Access::info(info);
  return known;
}

Module::Module(const std::string& path, const Option& option) : Module(LoadFromFile(path, option)) {}

Module Module::LoadFromFile(const std::string& path, const Option& option) {
  return load("Module::LoadFromFile", option, path);
}

Module Module::LoadFromMem(const void* data, int64_t size, const Option& option) {
  return load("Module::LoadFromMem", option, data, size);
}

tcim::Status Module::LoadModel(const std::string& path, const Option& option) {
  return Access::replace(*this, load("Module::LoadModel", option, path));
}

tcim::Status Module::LoadModel(const void* data, int64_t size, const Option& option) {
  return Access::replace(*this, load("Module::LoadModel", option, data, size));
}

Module::operator bool() const { return impl_ != nullptr && impl_->core != nullptr; }
bool Module::operator!() const { return !bool(*this); }
tcim::Status Module::GetInitStatus() const { return impl_ == nullptr ? UNINITIALIZED : impl_->status; }

int Module::GetInputNum() const {
  return guarded_or("Module::GetInputNum", 0, [&] { return int(Access::core(*this).num_inputs()); });
}

int Module::GetOutputNum() const {
  return guarded_or("Module::GetOutputNum", 0, [&] { return int(Access::core(*this).num_outputs()); });
}

std::string Module::GetInputName(int index) const {
  return guarded_or("Module::GetInputName", std::string(), [&] { return Access::core(*this).input_name(index); });
}

std::string Module::GetOutputName(int index) const {
  return guarded_or("Module::GetOutputName", std::string(), [&] { return Access::core(*this).output_name(index); });
}

TensorInfo Module::GetInputInfo(const std::string& name) const {
  return guarded_or("Module::GetInputInfo", TensorInfo(), [&] {
    Access::core(*this);
    return Access::port_info(*impl_, true, name);
  });
}

TensorInfo Module::GetOutputInfo(const std::string& name) const {
  return guarded_or("Module::GetOutputInfo", TensorInfo(), [&] {
    Access::core(*this);
    return Access::port_info(*impl_, false, name);
  });
}

std::string Module::GetCustomMsg() const {
  return guarded_or("Module::GetCustomMsg", std::string(), [&] { return Access::core(*this).custom_msg(); });
}

std::string Module::GetBackendName() const {
  return guarded_or("Module::GetBackendName", std::string(), [&] { return Access::core(*this).backend_name(); });
}

std::string Module::GetModelVersion() const {
  return guarded_or("Module::GetModelVersion", std::string(), [&] { return Access::core(*this).model_version(); });
}

int Module::GetCoreNum() const {
  return guarded_or("Module::GetCoreNum", 0, [&] { return Access::core(*this).core_number(); });
}

std::vector<int32_t> Module::GetDeviceIds() const {
  return guarded_or("Module::GetDeviceIds", std::vector<int32_t>(), [&] { return Access::core(*this).device_ids(); });
}

tcim::Status Module::Run(bool sync, const RunOption& option) {
  return guarded("Module::Run", [&] { Access::core(*this).run(sync, option.rounds_); });
}

tcim::Status Module::Sync() {
  return guarded("Module::Sync", [&] { Access::core(*this).sync(); });
}

tcim::Status Module::SetStream(const Stream& stream) {
  return guarded("Module::SetStream", [&] { Access::core(*this).set_stream(Access::core(stream)); });
}

}  // namespace tcim
