#include "layers/faults/calls.h"

#include <algorithm>

namespace tcim_lite::layers {
namespace {

// In the order of their names, which find_call() relies on.
constexpr KnownCall kCalls[] = {
    {"Buffer.create", true},
    {"Module.delete", false},
    {"Module.get_backend_name", false},
    {"Module.get_core_num", false},
    {"Module.get_custom_msg", false},
    {"Module.get_dev_input", false},
    {"Module.get_dev_output", false},
    {"Module.get_input_info", false},
    {"Module.get_input_name", false},
    {"Module.get_model_version", false},
    {"Module.get_num_inputs", false},
    {"Module.get_num_outputs", false},
    {"Module.get_output", true},
    {"Module.get_output_info", false},
    {"Module.get_output_name", false},
    {"Module.load", true},
    {"Module.release", false},
    {"Module.run", true},
    {"Module.set_dev_input", false},
    {"Module.set_dev_output", false},
    {"Module.set_input", true},
    {"Module.set_output", false},
    {"Module.set_stream", false},
    {"Module.sync", true},
    {"Module.taps", false},
    {"Stream.create", false},
    {"Tensor.allocate", true},
    {"Tensor.astype", true},
    {"Tensor.cast_to", true},
    {"Tensor.clone", true},
    {"Tensor.copy_to", true},
    {"Tensor.data", true},
    {"Tensor.from_array", false},
    {"Tensor.numpy", true},
    {"Tensor.select_roi", false},
    {"Tensor.set_zero", true},
    {"Tensor.split_yuv", false},
    {"Tensor.to_host", true},
    {"WeightManager.release", false},
    {"device_memory_used", false},
    {"device_telemetry", true},
    {kExecute, true},
    {"get_device_num", false},
    {"get_version", false},
    {"load_model_info", false},
    {"reset_device", false},
    {"set_dvfs_mode", true},
};

constexpr auto kByName = [](const KnownCall& a, const KnownCall& b) { return a.name < b.name; };
static_assert(std::is_sorted(std::begin(kCalls), std::end(kCalls), kByName));

}  // namespace

std::span<const KnownCall> known_calls() { return kCalls; }

const KnownCall* find_call(std::string_view name) {
  const auto* const found = std::lower_bound(std::begin(kCalls), std::end(kCalls), KnownCall{name, false}, kByName);
  return found != std::end(kCalls) && found->name == name ? found : nullptr;
}

}  // namespace tcim_lite::layers
