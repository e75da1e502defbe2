// The vendor's C++ classes over the table of tcim_c_api.h, which includes this. Each owns a handle and may be moved.
// Without a table a call gives what a failed one does. C++11 or later; new programs have tcim/tcim_runtime.h.
#ifndef TCIM_C_API_CLASSES_H
#define TCIM_C_API_CLASSES_H

namespace tcim_c_api {

template <typename Handle, void (*tcim_api_table_t::*destroy)(Handle)>
class Owner {
 public:
  Owner(Handle handle, tcim_api_table_t* api) : handle_(handle), api_(api) {}
  Owner(Owner&& other) noexcept : handle_(other.handle_), api_(other.api_) {
    other.handle_ = nullptr;
    other.api_ = nullptr;
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() {
    if (handle_ != nullptr && api_ != nullptr) (api_->*destroy)(handle_);
  }

  Handle handle() const { return handle_; }

 protected:
  template <typename Result, typename... Parameters, typename... Arguments>
  Result call(Result failed, Result (*tcim_api_table_t::*function)(Handle, Parameters...),
              Arguments... arguments) const {
    return api_ == nullptr ? failed : (api_->*function)(handle_, arguments...);
  }

  Handle handle_;
  tcim_api_table_t* api_;
};

class DevManager : public Owner<tcim_dev_manager_t, &tcim_api_table_t::tcim_dev_manager_destroy> {
 public:
  using Owner::Owner;
};

class WeightManager : public Owner<tcim_weight_manager_t, &tcim_api_table_t::tcim_weight_manager_destroy> {
 public:
  using Owner::Owner;
};

class ModuleOption : public Owner<tcim_module_option_t, &tcim_api_table_t::tcim_module_option_destroy> {
 public:
  using Owner::Owner;

  void SetDummyTensors(const char** tensor_names, size_t num_tensors) {
    if (api_ != nullptr) api_->tcim_module_option_set_dummy_tensors(handle_, tensor_names, num_tensors);
  }
  void EnableLazyMode(bool enable) {
    if (api_ != nullptr) api_->tcim_module_option_enable_lazy_mode(handle_, enable);
  }
  void SetModelOffset(size_t offset, size_t size) {
    if (api_ != nullptr) api_->tcim_module_option_set_model_offset(handle_, offset, size);
  }
};

class TensorInfo : public Owner<tcim_tensor_info_t, &tcim_api_table_t::tcim_tensor_info_destroy> {
 public:
  using Owner::Owner;

  TensorInfo AsContiguous() {
    return TensorInfo(call(tcim_tensor_info_t(), &tcim_api_table_t::tcim_tensor_info_as_contiguous), api_);
  }
  TensorInfo AsType(tcim_data_type_t dtype) {
    return TensorInfo(call(tcim_tensor_info_t(), &tcim_api_table_t::tcim_tensor_info_as_type, dtype), api_);
  }
  size_t GetShapeNum() const { return call(size_t(0), &tcim_api_table_t::tcim_tensor_info_get_shape_num); }
  int64_t GetShapeDim(size_t index) const {
    return call(int64_t(0), &tcim_api_table_t::tcim_tensor_info_get_shape_dim, index);
  }
  tcim_data_type_t GetDataType() const { return call(TCIM_FLOAT32, &tcim_api_table_t::tcim_tensor_info_get_data_type); }
  size_t GetMemSize() const { return call(size_t(0), &tcim_api_table_t::tcim_tensor_info_get_mem_size); }
};

class Tensor : public Owner<tcim_tensor_t, &tcim_api_table_t::tcim_tensor_destroy> {
 public:
  using Owner::Owner;
  Tensor() : Owner(nullptr, nullptr) {}

  TensorInfo GetInfo() const {
    return TensorInfo(call(tcim_tensor_info_t(), &tcim_api_table_t::tcim_tensor_get_info), api_);
  }
  // The caller's to destroy.
  tcim_buffer_t GetBuffer() const { return call(tcim_buffer_t(), &tcim_api_table_t::tcim_tensor_get_buffer); }
  size_t GetMemSize() const { return call(size_t(0), &tcim_api_table_t::tcim_tensor_get_mem_size); }
  void* GetData() const { return call(static_cast<void*>(nullptr), &tcim_api_table_t::tcim_tensor_get_data); }
  Tensor Clone() { return Tensor(call(tcim_tensor_t(), &tcim_api_table_t::tcim_tensor_clone), api_); }
  tcim_status_t CastTo(Tensor& target) {
    return call(TCIM_ERR_UNDEFINED, &tcim_api_table_t::tcim_tensor_cast_to, target.handle());
  }
};

class Module : public Owner<tcim_module_t, &tcim_api_table_t::tcim_module_destroy> {
 public:
  using Owner::Owner;

  tcim_status_t LoadModel(const char* filename, tcim_module_option_t option) {
    return call(TCIM_ERR_UNDEFINED, &tcim_api_table_t::tcim_module_load_model_file, filename, option);
  }
  tcim_status_t LoadModel(const void* data, uint64_t len, tcim_module_option_t option) {
    return call(TCIM_ERR_UNDEFINED, &tcim_api_table_t::tcim_module_load_model_mem, data, len, option);
  }

  size_t GetInputNum() const { return call(size_t(0), &tcim_api_table_t::tcim_module_get_input_num); }
  size_t GetOutputNum() const { return call(size_t(0), &tcim_api_table_t::tcim_module_get_output_num); }
  const char* GetInputName(int index) const {
    return call(static_cast<const char*>(nullptr), &tcim_api_table_t::tcim_module_get_input_name, index);
  }
  const char* GetOutputName(int index) const {
    return call(static_cast<const char*>(nullptr), &tcim_api_table_t::tcim_module_get_output_name, index);
  }
  TensorInfo GetInputInfo(const char* name) const {
    return TensorInfo(call(tcim_tensor_info_t(), &tcim_api_table_t::tcim_module_get_input_info, name), api_);
  }
  TensorInfo GetOutputInfo(const char* name) const {
    return TensorInfo(call(tcim_tensor_info_t(), &tcim_api_table_t::tcim_module_get_output_info, name), api_);
  }

  Tensor GetDevInput(const char* name) {
    return Tensor(call(tcim_tensor_t(), &tcim_api_table_t::tcim_module_get_dev_input, name), api_);
  }
  tcim_status_t SetInput(const char* name, const Tensor& tensor) {
    return call(TCIM_ERR_UNDEFINED, &tcim_api_table_t::tcim_module_set_input, name, tensor.handle());
  }
  tcim_status_t Run() { return call(TCIM_ERR_UNDEFINED, &tcim_api_table_t::tcim_module_run); }
  tcim_status_t Sync() { return call(TCIM_ERR_UNDEFINED, &tcim_api_table_t::tcim_module_sync); }
  Tensor GetOutput(const char* name) {
    return Tensor(call(tcim_tensor_t(), &tcim_api_table_t::tcim_module_get_output, name), api_);
  }
};

}  // namespace tcim_c_api

#endif  // TCIM_C_API_CLASSES_H
