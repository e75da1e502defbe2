// Module: what goes into inputs and comes out of outputs.
#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/half.h"
#include "runtime/api_call.h"
#include "runtime/host_bytes.h"
#include "runtime/loaded.h"
#include "runtime/module.h"
#include "runtime/yuv.h"

namespace tcim_lite {
namespace {

void check_elements(const char* who, const Port& port, int64_t elements, const std::string& got) {
  if (elements == port.info.elements()) return;
  fail(ErrorCode::Shape, who, " error: '", port.name(), "' is ", to_string(port.info), " with ", port.info.elements(),
       " elements, got ", got, " with ", elements, image_note(port.info));
}

std::string place_text(const std::vector<int>& device_ids) {
  std::string text = device_ids.size() == 1 ? "device " : "devices ";
  for (size_t rank = 0; rank < device_ids.size(); ++rank) text += concat(rank == 0 ? "" : ", ", device_ids[rank]);
  return text;
}

// A bound tensor must be on the same device as the port's own memory, aligned for its elements and cut in the same way.
void check_place(const char* who, const Port& port, const Tensor& tensor) {
  const TensorInfo& info = port.info;
  if (tensor.offset() % uint64_t(size_of(info.dtype)) != 0) {
    fail(ErrorCode::Shape, who, " error: '", port.name(), "' is ", to_string(info), ", the tensor begins at byte ",
         tensor.offset(), " of its memory; begin at a multiple of ", size_of(info.dtype));
  }
  const SlabLayout wanted = info.placement == nullptr ? SlabLayout{{info.device_id}, 1, {}}
                                                      : SlabLayout::of(*info.placement, info.shape, info.dtype);
  const SlabLayout& layout = tensor.buffer()->layout();
  if (layout.device_ids != wanted.device_ids) {
    fail(ErrorCode::Argument, who, " error: '", port.name(), "' is on ", place_text(wanted.device_ids),
         ", the tensor on ", place_text(layout.device_ids), "; copy it through the host");
  }
  if (layout != wanted || (!wanted.runs.empty() && tensor.offset() != 0)) {
    fail(ErrorCode::Shape, who, " error: '", port.name(), "' (", to_string(info),
         ") and the tensor are cut differently over ", place_text(wanted.device_ids), "; copy it through the host");
  }
}

// The requirements on a tensor that is bound to a port.
void check_bind(const char* who, const Port& port, const Tensor& tensor) {
  const TensorInfo& info = tensor.info();
  if (!tensor.has_storage()) {
    fail(ErrorCode::State, who, " error: Status.UNINITIALIZED: the tensor given for '", port.name(), "' ('", info.name,
         "') has no memory, it belongs to an unbound dummy; bind that input first");
  }
  if (!tensor.on_device()) {
    fail(ErrorCode::Argument, who, " error: '", port.name(), "' needs a device tensor, got one on the host; ",
         std::string_view(who) == "set_dev_output" ? "use set_output to have results copied to it"
                                                   : "use set_input to copy host data");
  }
  if (info.dtype != port.info.dtype) {
    fail(ErrorCode::Shape, who, " error: '", port.name(), "' is ", to_string(port.info), ", got ", to_string(info),
         "; a bound tensor is not converted");
  }
  check_elements(who, port, info.elements(), to_string(info));
  if (!info.is_dense()) {
    fail(ErrorCode::Shape, who, " error: '", port.name(),
         "' needs a dense tensor, got a strided view; clone it densely");
  }
  check_place(who, port, tensor);
}

// Programs fill masks with -infinity, which no run reads; a score that is so much less counts as little.
template <typename T>
void hide(std::byte* bytes, int64_t count, T infinity, T least) {
  T* elements = reinterpret_cast<T*>(bytes);
  std::replace(elements, elements + count, infinity, least);
}

void hide_infinite(std::byte* bytes, const TensorInfo& info) {
  if (info.dtype == DType::Float16) return hide<uint16_t>(bytes, info.elements(), 0xfc00, float_to_half(-65504));
  hide<float>(bytes, info.elements(), -std::numeric_limits<float>::infinity(), -65504);
}

// A host tensor is copied.
void describe_bind(CallEvent& event, const Tensor& tensor) {
  event.tensor = TensorFacts(tensor);
  event.binds = tensor.on_device();
}

// Of a tensor that could be bound, but not in this way.
[[noreturn]] void refuse_bind_through_set_input(ApiVersion version, const Port& port, const Tensor& tensor) {
  check_bind("set_input", port, tensor);
  fail(ErrorCode::State, "set_input error: Status.UNINITIALIZED: '", port.name(), "' was not named in ",
       "set_dummy_tensors, and set_input of runtime ", name_of(version), " (TCIM_LITE_EMULATE) binds a device tensor ",
       "to such inputs only; use set_dev_input, which every version has");
}

}  // namespace

template <typename Find>
Port& Module::idle_port(std::unique_lock<std::mutex>& lock, const Find& find) {
  Port* port = &find();
  if (port->buffer == nullptr || port->buffer->idle()) return *port;
  const std::shared_ptr<const Buffer> buffer = port->buffer;
  lock.unlock();
  buffer->wait_for_runs();
  lock.lock();
  port = &find();  // it may have been bound to other memory, and the module released
  if (port->buffer != nullptr) port->buffer->wait_idle();
  return *port;
}

void Module::set_input(std::string_view name, const ArrayView& array) {
  return api_call(
      device_call<"Module.set_input">,
      [&](CallEvent& event) {
        describe(event, Side::Input, name);
        event.array = event.values = &array;
        event.writes = Memory::Port;
      },
      [&] {
        std::unique_lock lock(mutex_);
        Port& port = idle_port(lock, [&]() -> Port& { return this->port(Side::Input, "set_input", name); });
        const auto images =
            images_without_padding(port.info, array, concat("set_input error: input '", port.name(), "'"));
        if (!images && array.elements() != port.info.elements()) {
          check_elements("set_input", port, array.elements(),
                         "shape " + to_string(Shape(array.shape.begin(), array.shape.end())));
        }
        const ArrayView values =
            images ? ArrayView{images->data(), DType::UInt8, port.info.shape, port.info.strides} : array;
        const bool had_memory = port.buffer != nullptr;
        allocate(port);
        try {
          const Tensor tensor = port.tensor();
          HostBytes target(tensor, HostAccess::Write);
          copy_to_dense(values, port.info.dtype, target.data(), "set_input error");
          if (port.hides) hide_infinite(target.data(), port.info);
          target.store();
        } catch (const Error& error) {
          if (!had_memory) port.buffer.reset();  // still an unbound dummy
          throw Error(error.code(), concat(error.what(), ", input '", port.name(), "'"));
        }
      });
}

void Module::set_input(std::string_view name, const Tensor& tensor) {
  HostValues values;
  return api_call(
      device_call<"Module.set_input">,
      [&](CallEvent& event) {
        describe(event, Side::Input, name);
        values.describe(event, tensor);
        describe_bind(event, tensor);
        if (!event.binds) event.writes = Memory::Port;
      },
      [&] {
        if (tensor.on_device() || !tensor.has_storage()) {
          const std::lock_guard lock(mutex_);
          Port& port = this->port(Side::Input, "set_input", name);
          if (!set_input_binds(loaded_->version, port.is_dummy)) {
            refuse_bind_through_set_input(loaded_->version, port, tensor);
          }
          return bind("set_input", port, tensor);
        }
        tensor.buffer()->wait_for_runs();
        tensor.buffer()->wait_idle();
        const Shape strides = byte_strides(tensor.info());
        set_input(name, ArrayView{tensor.data(), tensor.info().dtype, tensor.info().shape, strides});
      });
}

void Module::bind(const KnownCall& call, Side side, const char* who, std::string_view name, const Tensor& tensor) {
  return api_call(
      call,
      [&](CallEvent& event) {
        describe(event, side, name);
        describe_bind(event, tensor);
      },
      [&] {
        const std::lock_guard lock(mutex_);
        bind(who, port(side, who, name), tensor);
      });
}

void Module::set_dev_input(std::string_view name, const Tensor& tensor) {
  bind(host_call<"Module.set_dev_input">, Side::Input, "set_input", name, tensor);
}

void Module::set_dev_output(std::string_view name, const Tensor& tensor) {
  bind(host_call<"Module.set_dev_output">, Side::Output, "set_dev_output", name, tensor);
}

void Module::bind(const char* who, Port& port, const Tensor& tensor) {
  if (tensor.has_storage() && tensor.buffer() == port.buffer && tensor.offset() == port.offset && !port.sink &&
      tensor.info().dtype == port.info.dtype && tensor.info().elements() == port.info.elements() &&
      tensor.info().is_dense()) {
    return;  // C-26: nothing changes
  }
  check_bind(who, port, tensor);
  port.buffer = tensor.buffer();
  port.offset = tensor.offset();
  port.sink.reset();
  loaded_->bound = nullptr;
}

Tensor Module::output(std::string_view name, const std::optional<TensorInfo>& info) {
  return api_call(
      device_call<"Module.get_output">,
      [&](CallEvent& event) {
        describe(event, Side::Output, name);
        event.reads = Memory::Port;
        if (info) event.info = TensorFacts(*info, nullptr, 0);
      },
      [&]() -> Tensor {
        finish_runs("get_output")->raise_error();
        // Held while copying: otherwise a thread that keeps queueing runs could delay the copy for ever or change the
        // memory during it.
        std::unique_lock lock(mutex_);
        const Port& port = idle_port(lock, [&]() -> Port& { return this->port(Side::Output, "get_output", name); });
        if (info) check_elements("get_output", port, info->elements(), to_string(*info));
        const Tensor device = port.tensor();
        if (!info) return device.to_host(true);
        TensorInfo wanted = info->on_host();
        wanted.name = device.info().name;
        Tensor host = Tensor::allocate(wanted);
        device.cast_to(host);
        return host;
      });
}

void Module::output_to(std::string_view name, const Tensor& target) {
  return api_call(
      device_call<"Module.get_output">,
      [&](CallEvent& event) {
        describe(event, Side::Output, name);
        event.tensor = TensorFacts(target);
        event.made = host_array(target);
        event.reads = Memory::Port;
      },
      [&] {
        finish_runs("get_output")->raise_error();
        if (target.has_storage()) target.buffer()->wait_for_runs();
        std::unique_lock lock(mutex_);
        const Port& port = idle_port(lock, [&]() -> Port& { return this->port(Side::Output, "get_output", name); });
        check_elements("get_output", port, target.info().elements(), to_string(target.info()));
        port.tensor().cast_to(target);
      });
}

void Module::set_output(std::string_view name, const Tensor& tensor) {
  return api_call(
      host_call<"Module.set_output">,
      [&](CallEvent& event) {
        describe(event, Side::Output, name);
        describe_bind(event, tensor);
      },
      [&] {
        if (tensor.on_device() || !tensor.has_storage()) return set_dev_output(name, tensor);
        const std::lock_guard lock(mutex_);
        Port& port = this->port(Side::Output, "set_output", name);
        check_elements("set_output", port, tensor.info().elements(), to_string(tensor.info()));
        tensor.buffer()->mark_written_by_runs();
        port.sink = tensor;
        loaded_->bound = nullptr;
      });
}

}  // namespace tcim_lite
