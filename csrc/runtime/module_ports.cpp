// Module: names, infos and memory of inputs and outputs, and what the file says of itself.
#include <optional>
#include <string_view>

#include "base/error.h"
#include "graph/taps.h"
#include "runtime/api_call.h"
#include "runtime/devices.h"
#include "runtime/loaded.h"
#include "runtime/module.h"

namespace tcim_lite {
namespace {

// The call is "Module.NAME"; messages say NAME.
const char* name_of(const KnownCall& call) { return call.name + sizeof "Module"; }

const Port& port_at(const KnownCall& call, const PortTable& ports, int64_t index) {
  if (index < 0 || uint64_t(index) >= ports.counted()) {
    fail(ErrorCode::Argument, name_of(call), ": index ", index, " is outside 0 .. ", int64_t(ports.counted()) - 1);
  }
  return ports[size_t(index)];
}

}  // namespace

// What the host knows of a loaded module, or of its input or output `index`.
template <typename Read>
auto Module::fact(const KnownCall& call, const Read& read, std::optional<int64_t> index) const {
  return api_call(
      call,
      [&](CallEvent& event) {
        describe(event);
        event.index = index;
      },
      [&] {
        const std::lock_guard lock(mutex_);
        return read(loaded(name_of(call)));
      });
}

// The same of the input or output `name`.
template <typename Read>
auto Module::fact_of(const KnownCall& call, Side side, std::string_view name, const Read& read) const {
  return api_call(
      call, [&](CallEvent& event) { describe(event, side, name); },
      [&] {
        const std::lock_guard lock(mutex_);
        return read(port(side, name_of(call), name));
      });
}

size_t Module::num_inputs() const {
  return fact(host_call<"Module.get_num_inputs">, [](const Loaded& loaded) { return loaded.inputs.size(); });
}

size_t Module::num_outputs() const {
  return fact(host_call<"Module.get_num_outputs">, [](const Loaded& loaded) { return loaded.outputs.counted(); });
}

std::string Module::input_name(int64_t index) const {
  const auto& call = host_call<"Module.get_input_name">;
  return fact(call, [&](const Loaded& loaded) { return port_at(call, loaded.inputs, index).name(); }, index);
}

std::string Module::output_name(int64_t index) const {
  const auto& call = host_call<"Module.get_output_name">;
  return fact(call, [&](const Loaded& loaded) { return port_at(call, loaded.outputs, index).name(); }, index);
}

std::vector<std::string> Module::taps() const {
  return fact(host_call<"Module.taps">, [](const Loaded& loaded) {
    const PortTable& outputs = loaded.outputs;
    std::vector<std::string> names;
    for (size_t port = outputs.counted(); port < outputs.size(); ++port) names.push_back(outputs[port].name());
    return names;
  });
}

TensorInfo Module::input_info(std::string_view name) const {
  return fact_of(host_call<"Module.get_input_info">, Side::Input, name, [](const Port& port) { return port.info; });
}

TensorInfo Module::output_info(std::string_view name) const {
  return fact_of(host_call<"Module.get_output_info">, Side::Output, name, [](const Port& port) { return port.info; });
}

Tensor Module::input(std::string_view name) const {
  return fact_of(host_call<"Module.get_dev_input">, Side::Input, name, [](const Port& port) { return port.tensor(); });
}

Tensor Module::dev_output(std::string_view name) const {
  return fact_of(host_call<"Module.get_dev_output">, Side::Output, name,
                 [](const Port& port) { return port.tensor(); });
}

std::string Module::custom_msg() const {
  return fact(host_call<"Module.get_custom_msg">,
              [](const Loaded& loaded) { return loaded.program->content().custom_msg; });
}

int Module::core_number() const {
  return fact(host_call<"Module.get_core_num">,
              [](const Loaded& loaded) { return int(loaded.program->content().ncore); });
}

std::string Module::backend_name() const {
  return fact(host_call<"Module.get_backend_name">, [](const Loaded& loaded) { return loaded.backend; });
}

std::string Module::model_version() const {
  return fact(host_call<"Module.get_model_version">, [](const Loaded& loaded) {
    const hmm::File& content = loaded.program->content();
    return concat("V", content.version_major, ".", content.version_minor);
  });
}

std::vector<int> Module::device_ids() const {
  return fact(host_call<"Module.get_device_ids">, [](const Loaded& loaded) {
    std::vector<int> ids;
    for (const Device* device : loaded.program->devices()) ids.push_back(device->id());
    return ids;
  });
}

Port& Module::port(Side side, const char* who, std::string_view name) const {
  PortTable& ports = loaded(who).ports(side);
  if (Port* port = ports.find(name)) return *port;
  const char* kind = side == Side::Input ? "input" : "output";
  const bool is_tap = side == Side::Output && name.starts_with(kTapPrefix);
  fail(ErrorCode::UnknownName, "Module ", who, " error: no ", kind, " is named '", name, "'; the ", kind, "s are ",
       ports.names(), is_tap ? "; a tap has to be asked for at load, with Option.set_taps or TCIM_LITE_TAPS" : "");
}

}  // namespace tcim_lite
