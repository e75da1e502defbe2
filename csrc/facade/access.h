// What the handles of tcim_runtime.h stand for, and how the facade's files reach into them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "facade/report.h"
#include "runtime/devices.h"
#include "runtime/module.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"
#include "tcim/tcim_runtime.h"

namespace tcim::internal {

struct DevManagerState {
  tcim::Status status = OK;
  std::vector<int> ids;
  std::string backend;
};

struct BufferState {
  tcim::Status status = OK;
  std::shared_ptr<tcim_lite::Buffer> memory;  // null: could not be made
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct TensorInfoState {
  tcim_lite::TensorInfo core;
};

struct TensorState {
  tcim::Status status = OK;
  tcim_lite::Tensor core;
  TensorInfo info;  // shares core.info()
};

struct StreamState {
  std::shared_ptr<tcim_lite::Stream> core;
};

struct WeightManagerState {
  tcim::Status status = OK;
  DevManagerState devices;
  std::shared_ptr<tcim_lite::WeightStore> store;
};

struct OptionState {
  tcim_lite::LoadOptions load;  // devices and weights are those of Option::weight_manager
  bool has_offset = false;
};

struct ModuleState {
  tcim::Status status = OK;
  std::shared_ptr<tcim_lite::Module> core;  // null: not loaded

  // Of the ports, by compiled name, so that a Shape() lives as long as the module.
  std::mutex mutex;
  std::map<std::string, TensorInfo> inputs, outputs;
};

struct Access {
  template <typename Handle>
  static auto& impl(Handle& handle) {
    return handle.impl_;
  }

  static TensorInfo info(tcim_lite::TensorInfo core);
  static Tensor tensor(tcim_lite::Tensor core);
  // With an info handle that describes core.info() already.
  static Tensor tensor(tcim_lite::Tensor core, TensorInfo info);
  static Tensor failed_tensor(Status status);
  static Buffer buffer(std::shared_ptr<tcim_lite::Buffer> memory, uint64_t offset, uint64_t bytes);
  static Buffer failed_buffer(Status status);

  // The core of a handle. All throw Error(State) for an empty one. `vendors` begins the message where the vendor's is
  // known: "set_input error: ".
  static const tcim_lite::TensorInfo& core(const TensorInfo& info);
  static const tcim_lite::Tensor& core(const Tensor& tensor, const char* vendors = "");
  static const BufferState& core(const Buffer& buffer);
  static const std::shared_ptr<tcim_lite::Stream>& core(const Stream& stream);
  static tcim_lite::Module& core(const Module& module);

  static DevManagerState devices(std::vector<int32_t> ids, std::string backend);
  static tcim_lite::LoadOptions load_options(const Module::Option& option);
  static TensorInfo port_info(ModuleState& module, bool input, const std::string& name);

  static Module module(Status status, std::shared_ptr<tcim_lite::Module> core);
  static Status replace(Module& module, Module loaded);
};

// What `make` returns, or a tensor that only carries a status.
template <typename Make>
Tensor make_tensor(const char* what, const Make& make) {
  Tensor made;
  const Status status = guarded(what, [&] { made = make(); });
  return status == OK ? made : Access::failed_tensor(status);
}

tcim_lite::DType to_core(DataType dtype);
tcim_lite::Format to_core(DataFmt format);

}  // namespace tcim::internal
