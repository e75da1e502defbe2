// Managers of devices and weights, options and modules in C.
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "c_api/calls.h"

using tcim::internal::guarded;
using tcim::internal::guarded_or;
using tcim_lite::ErrorCode;
using tcim_lite::fail;
using namespace tcim_lite::c_api;

namespace {

// As a pointer that lives as long as the module; NULL for "", which the facade has reported.
const char* kept_name(NamedModule& module, std::string name) {
  if (name.empty()) return nullptr;
  const std::lock_guard lock(module.mutex);
  return module.names.insert(std::move(name)).first->c_str();
}

}  // namespace

tcim_dev_manager_t tcim_dev_manager_create_impl(const int* device_ids, size_t num_devices, const char* backend_name) {
  return guarded_or(__func__, tcim_dev_manager_t(), [&] {
    if (device_ids == nullptr && num_devices != 0) fail(ErrorCode::Argument, "device_ids is NULL");
    if (num_devices > 4096) fail(ErrorCode::Argument, num_devices, " devices; expected at most 4096");
    auto made = tcim::DevManager::Create(std::vector<int32_t>(device_ids, device_ids + num_devices),
                                         backend_name == nullptr ? "" : backend_name);
    return made.GetInitStatus() == tcim::OK ? make<tcim_dev_manager_t>(std::move(made)) : nullptr;
  });
}

void tcim_dev_manager_destroy_impl(tcim_dev_manager_t dev_manager) { destroy(__func__, dev_manager); }

tcim_weight_manager_t tcim_weight_manager_create_impl(tcim_dev_manager_t dev_manager) {
  return guarded_or(__func__, tcim_weight_manager_t(), [&] {
    return make<tcim_weight_manager_t>(tcim::Module::WeightManager::CreateWeightManager(*at(dev_manager)));
  });
}

void tcim_weight_manager_destroy_impl(tcim_weight_manager_t weight_manager) { destroy(__func__, weight_manager); }

tcim_module_option_t tcim_module_option_create_impl(tcim_weight_manager_t weight_manager) {
  return guarded_or(__func__, tcim_module_option_t(), [&] { return make<tcim_module_option_t>(*at(weight_manager)); });
}

void tcim_module_option_destroy_impl(tcim_module_option_t option) { destroy(__func__, option); }

void tcim_module_option_set_dummy_tensors_impl(tcim_module_option_t option, const char** tensor_names,
                                               size_t num_tensors) {
  guarded(__func__, [&] {
    const auto changed = at(option);
    if (tensor_names == nullptr && num_tensors != 0) fail(ErrorCode::Argument, "tensor_names is NULL");
    std::vector<std::string> names;
    for (size_t i = 0; i < num_tensors; ++i) names.push_back(text(tensor_names[i], "a name in tensor_names"));
    changed->SetDummyTensors(names);
  });
}

void tcim_module_option_enable_lazy_mode_impl(tcim_module_option_t option, bool enable) {
  guarded(__func__, [&] { at(option)->EnableLazyMode(enable); });
}

void tcim_module_option_set_model_offset_impl(tcim_module_option_t option, size_t offset, size_t size) {
  guarded(__func__, [&] { at(option)->SetModelOffset(offset, size); });
}

void tcim_module_option_register_abort_callback_impl(tcim_module_option_t option, tcim_abort_callback_fn cb,
                                                     void* user_data) {
  guarded(__func__, [&] {
    const auto changed = at(option);
    if (cb == nullptr) {
      changed->RegisterAbortCbFn(nullptr);
    } else {
      changed->RegisterAbortCbFn([cb, user_data] { return cb(user_data); });
    }
  });
}

tcim_module_t tcim_module_create_impl(void) {
  return guarded_or(__func__, tcim_module_t(), [] { return make<tcim_module_t>(); });
}

void tcim_module_destroy_impl(tcim_module_t module) { destroy(__func__, module); }

tcim_status_t tcim_module_load_model_file_impl(tcim_module_t module, const char* filename,
                                               tcim_module_option_t option) {
  return status_of(__func__, [&] {
    const auto loaded = at(module);
    return loaded->module.LoadModel(text(filename, "filename"), *at(option));
  });
}

tcim_status_t tcim_module_load_model_mem_impl(tcim_module_t module, const void* data, uint64_t len,
                                              tcim_module_option_t option) {
  return status_of(__func__, [&] {
    const auto loaded = at(module);
    if (len > uint64_t(std::numeric_limits<int64_t>::max())) {
      fail(ErrorCode::Argument, "len is ", len, "; expected the size of the model in bytes");
    }
    return loaded->module.LoadModel(data, int64_t(len), *at(option));
  });
}

size_t tcim_module_get_input_num_impl(tcim_module_t module) {
  return guarded_or(__func__, size_t(0), [&] { return size_t(at(module)->module.GetInputNum()); });
}

const char* tcim_module_get_input_name_impl(tcim_module_t module, int index) {
  return guarded_or(__func__, static_cast<const char*>(nullptr), [&] {
    const auto asked = at(module);
    return kept_name(*asked, asked->module.GetInputName(index));
  });
}

tcim_tensor_info_t tcim_module_get_input_info_impl(tcim_module_t module, const char* name) {
  return guarded_or(__func__, tcim_tensor_info_t(), [&] {
    const auto asked = at(module);
    return handle_of(asked->module.GetInputInfo(text(name, "name")));
  });
}

size_t tcim_module_get_output_num_impl(tcim_module_t module) {
  return guarded_or(__func__, size_t(0), [&] { return size_t(at(module)->module.GetOutputNum()); });
}

const char* tcim_module_get_output_name_impl(tcim_module_t module, int index) {
  return guarded_or(__func__, static_cast<const char*>(nullptr), [&] {
    const auto asked = at(module);
    return kept_name(*asked, asked->module.GetOutputName(index));
  });
}

tcim_tensor_info_t tcim_module_get_output_info_impl(tcim_module_t module, const char* name) {
  return guarded_or(__func__, tcim_tensor_info_t(), [&] {
    const auto asked = at(module);
    return handle_of(asked->module.GetOutputInfo(text(name, "name")));
  });
}

tcim_tensor_t tcim_module_get_dev_input_impl(tcim_module_t module, const char* name) {
  return guarded_or(__func__, tcim_tensor_t(), [&] {
    const auto asked = at(module);
    return handle_of(asked->module.GetDevInput(text(name, "name")));
  });
}

tcim_status_t tcim_module_set_input_impl(tcim_module_t module, const char* name, tcim_tensor_t tensor) {
  return status_of(__func__, [&] {
    const auto asked = at(module);
    return asked->module.SetInput(text(name, "name"), *at(tensor));
  });
}

tcim_status_t tcim_module_run_impl(tcim_module_t module) {
  return status_of(__func__, [&] { return at(module)->module.Run(); });
}

tcim_status_t tcim_module_sync_impl(tcim_module_t module) {
  return status_of(__func__, [&] { return at(module)->module.Sync(); });
}

tcim_tensor_t tcim_module_get_output_impl(tcim_module_t module, const char* name) {
  return guarded_or(__func__, tcim_tensor_t(), [&] {
    const auto asked = at(module);
    return handle_of(asked->module.GetOutput(text(name, "name")));
  });
}

tcim_status_t tcim_module_get_output_into_impl(tcim_module_t module, const char* name, tcim_tensor_t tensor) {
  return status_of(__func__, [&] {
    const auto asked = at(module);
    return asked->module.GetOutput(text(name, "name"), *at(tensor));
  });
}
