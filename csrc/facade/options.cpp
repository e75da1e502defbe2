// WeightManager, Option, RunOption, Stream.
#include <utility>

#include "base/error.h"
#include "facade/access.h"
#include "facade/report.h"

namespace tcim {

using namespace internal;

Module::WeightManager Module::WeightManager::CreateWeightManager(int device_id) {
  return CreateWeightManager(DevManager::Create(device_id));
}

Module::WeightManager Module::WeightManager::CreateWeightManager(const DevManager& devices) {
  WeightManager made;
  made.impl_ = std::make_shared<WeightManagerState>();
  made.impl_->status = devices.GetInitStatus();
  if (made.impl_->status == OK) {
    made.impl_->devices = *Access::impl(devices);
    made.impl_->store = std::make_shared<tcim_lite::WeightStore>();
  }
  return made;
}

tcim::Status Module::WeightManager::GetInitStatus() const { return impl_ == nullptr ? UNINITIALIZED : impl_->status; }

tcim::Status Module::WeightManager::Release() {
  return guarded("WeightManager::Release", [&] {
    if (GetInitStatus() != OK) {
      tcim_lite::fail(tcim_lite::ErrorCode::State,
                      "Release: Status.UNINITIALIZED: the manager was never made; use CreateWeightManager");
    }
    impl_->store->release();
  });
}

Module::Option::Option() : Option(0) {}
Module::Option::Option(int device_id) : Option(WeightManager::CreateWeightManager(device_id)) {}
Module::Option::Option(const DevManager& devices) : Option(WeightManager::CreateWeightManager(devices)) {}

Module::Option::Option(const WeightManager& weights)
    : device_id(weights.GetInitStatus() == OK ? Access::impl(weights)->devices.ids.front() : -1),
      weight_manager(weights),
      impl_(std::make_shared<OptionState>()) {}

Module::Option::Option(const Option& other)
    : device_id(other.device_id),
      weight_manager(other.weight_manager),
      impl_(std::make_shared<OptionState>(*other.impl_)) {}
Module::Option& Module::Option::operator=(const Option& other) {
  device_id = other.device_id;
  weight_manager = other.weight_manager;
  impl_ = std::make_shared<OptionState>(*other.impl_);
  return *this;
}
Module::Option::~Option() { impl_.reset(); }

Module::Option& Module::Option::SetDummyTensors(const std::vector<std::string>& names) {
  impl_->load.dummies = names;
  return *this;
}

Module::Option& Module::Option::SetModelOffset(size_t offset, size_t size) {
  impl_->load.offset = offset;
  impl_->load.size = size;
  impl_->has_offset = true;
  return *this;
}

Module::Option& Module::Option::EnableHostLazyLoading(bool) { return *this; }
Module::Option& Module::Option::EnableIOLazyMode(bool) { return *this; }
Module::Option& Module::Option::EnableLazyMode(bool) { return *this; }

Module::Option& Module::Option::RegisterAbortCbFn(std::function<bool()> should_abort) {
  impl_->load.should_abort = std::move(should_abort);
  return *this;
}

tcim_lite::LoadOptions internal::Access::load_options(const Module::Option& option) {
  const OptionState& impl = *option.impl_;
  const tcim::Status status = option.weight_manager.GetInitStatus();
  if (status != OK) {
    tcim_lite::fail(status == UNINITIALIZED ? tcim_lite::ErrorCode::State
                    : status == UNSUPPORTED ? tcim_lite::ErrorCode::Unsupported
                                            : tcim_lite::ErrorCode::Argument,
                    "the option was made from a WeightManager that was not created (its GetInitStatus() is ",
                    int(status), "); use WeightManager::CreateWeightManager");
  }
  const WeightManagerState& manager = *Access::impl(option.weight_manager);
  if (option.device_id != manager.devices.ids.front()) {
    tcim_lite::fail(tcim_lite::ErrorCode::Argument, "the option's device_id is ", option.device_id,
                    ", its weight_manager is of device ", manager.devices.ids.front(),
                    "; set both, or make an Option(device_id)");
  }
  if (impl.has_offset && impl.load.size == 0) {
    tcim_lite::fail(tcim_lite::ErrorCode::Argument, "SetModelOffset(", impl.load.offset,
                    ", 0): expected the exact size of the model");
  }
  tcim_lite::LoadOptions load = impl.load;
  load.device_ids = manager.devices.ids;
  load.backend = manager.devices.backend;
  load.weights = manager.store;
  return load;
}

Module::RunOption::RunOption() : rounds_(1) {}

Module::RunOption& Module::RunOption::Rounds(int rounds) {
  rounds_ = rounds;
  return *this;
}

Stream::Stream() : Stream(false) {}

Stream::Stream(bool auto_yield) {
  guarded("Stream", [&] { impl_ = std::make_shared<StreamState>(StreamState{tcim_lite::Stream::create(auto_yield)}); });
}

const std::shared_ptr<tcim_lite::Stream>& internal::Access::core(const Stream& stream) {
  if (stream.impl_ == nullptr) {
    tcim_lite::fail(tcim_lite::ErrorCode::State, "Status.UNINITIALIZED: the stream was moved from");
  }
  return stream.impl_->core;
}

}  // namespace tcim
