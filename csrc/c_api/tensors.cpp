// Infos, tensors and buffers in C.
#include <utility>

#include "c_api/calls.h"

using tcim::internal::guarded_or;
using tcim_lite::ErrorCode;
using tcim_lite::fail;
using namespace tcim_lite::c_api;

static_assert(int(TCIM_INT8) == int(tcim::INT8) && int(TCIM_UINT8) == int(tcim::UINT8));
static_assert(int(TCIM_INT16) == int(tcim::INT16) && int(TCIM_UINT16) == int(tcim::UINT16));
static_assert(int(TCIM_INT32) == int(tcim::INT32) && int(TCIM_UINT32) == int(tcim::UINT32));
static_assert(int(TCIM_FLOAT16) == int(tcim::FLOAT16) && int(TCIM_FLOAT32) == int(tcim::FLOAT32));

void tcim_tensor_info_destroy_impl(tcim_tensor_info_t info) { destroy(__func__, info); }

tcim_tensor_info_t tcim_tensor_info_as_contiguous_impl(tcim_tensor_info_t info) {
  return guarded_or(__func__, tcim_tensor_info_t(), [&] { return handle_of(at(info)->AsContiguous()); });
}

tcim_tensor_info_t tcim_tensor_info_as_type_impl(tcim_tensor_info_t info, tcim_data_type_t dtype) {
  return guarded_or(__func__, tcim_tensor_info_t(),
                    [&] { return handle_of(at(info)->AsType(tcim::DataType(int(dtype)))); });
}

size_t tcim_tensor_info_get_shape_num_impl(tcim_tensor_info_t info) {
  return guarded_or(__func__, size_t(0), [&] { return at(info)->Shape().size(); });
}

int64_t tcim_tensor_info_get_shape_dim_impl(tcim_tensor_info_t info, size_t index) {
  return guarded_or(__func__, int64_t(0), [&] {
    const auto asked = at(info);
    const auto& shape = asked->Shape();
    if (index >= shape.size()) fail(ErrorCode::Argument, "axis ", index, " of a shape with ", shape.size(), " axes");
    return shape[index];
  });
}

tcim_data_type_t tcim_tensor_info_get_data_type_impl(tcim_tensor_info_t info) {
  return guarded_or(__func__, TCIM_FLOAT32, [&] { return tcim_data_type_t(int(at(info)->DataType())); });
}

size_t tcim_tensor_info_get_mem_size_impl(tcim_tensor_info_t info) {
  return guarded_or(__func__, size_t(0), [&] { return at(info)->MemSize(); });
}

tcim_tensor_t tcim_tensor_create_host_impl(tcim_tensor_info_t info, size_t mem_size, void* ptr) {
  return guarded_or(__func__, tcim_tensor_t(),
                    [&] { return handle_of(tcim::Tensor::CreateHostTensor(*at(info), mem_size, ptr)); });
}

void tcim_tensor_destroy_impl(tcim_tensor_t tensor) { destroy(__func__, tensor); }

tcim_tensor_info_t tcim_tensor_get_info_impl(tcim_tensor_t tensor) {
  return guarded_or(__func__, tcim_tensor_info_t(), [&] { return handle_of(at(tensor)->Info()); });
}

tcim_buffer_t tcim_tensor_get_buffer_impl(tcim_tensor_t tensor) {
  return guarded_or(__func__, tcim_buffer_t(), [&] {
    tcim::Buffer buffer = at(tensor)->Buffer();
    if (buffer.GetInitStatus() != tcim::OK)
      fail(ErrorCode::State, "the tensor has no memory, as dummy inputs have none");
    return make<tcim_buffer_t>(std::move(buffer));
  });
}

size_t tcim_tensor_get_mem_size_impl(tcim_tensor_t tensor) {
  return guarded_or(__func__, size_t(0), [&] { return at(tensor)->MemSize(); });
}

void* tcim_tensor_get_data_impl(tcim_tensor_t tensor) {
  return guarded_or(__func__, static_cast<void*>(nullptr), [&] { return at(tensor)->Data(); });
}

tcim_tensor_t tcim_tensor_clone_impl(tcim_tensor_t tensor) {
  return guarded_or(__func__, tcim_tensor_t(), [&] { return handle_of(at(tensor)->Clone()); });
}

tcim_status_t tcim_tensor_cast_to_impl(tcim_tensor_t tensor, tcim_tensor_t target) {
  return status_of(__func__, [&] {
    const auto source = at(tensor);
    return source->CastTo(*at(target));
  });
}

tcim_status_t tcim_tensor_copy_from_host_impl(tcim_tensor_t tensor, const void* src, size_t size, size_t offset) {
  return status_of(__func__, [&] { return at(tensor)->Buffer().CopyFromHost(src, size, offset); });
}

tcim_data_type_t tcim_tensor_get_data_type_impl(tcim_tensor_t tensor) {
  return guarded_or(__func__, TCIM_FLOAT32, [&] { return tcim_data_type_t(int(at(tensor)->Info().DataType())); });
}

void tcim_buffer_destroy_impl(tcim_buffer_t buffer) { destroy(__func__, buffer); }

tcim_status_t tcim_buffer_copy_from_host_impl(tcim_buffer_t buffer, const void* src, size_t size, size_t offset) {
  return status_of(__func__, [&] { return at(buffer)->CopyFromHost(src, size, offset); });
}
