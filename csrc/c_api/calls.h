// What the calls of tcim_c_api.h have in common. They are named by __func__.
#pragma once

#include <string>

#include "c_api/handles.h"
#include "facade/report.h"

namespace tcim_lite::c_api {

inline tcim_status_t status_in_c(tcim::Status status) {
  switch (status) {
    case tcim::OK:
      return TCIM_OK;
    case tcim::UNINITIALIZED:
      return TCIM_UNINITIALIZED;
    case tcim::INVALID_ARGUMENT:
      return TCIM_INVALID_ARGUMENT;
    case tcim::UNSUPPORTED:
      return TCIM_UNSUPPORTED;
    default:
      return TCIM_ERR_UNDEFINED;
  }
}

// `body` returns the Status of a call of the facade, which reports by itself.
template <typename Body>
tcim_status_t status_of(const char* what, Body&& body) noexcept {
  tcim::Status status = tcim::OK;
  const tcim::Status reported = tcim::internal::guarded(what, [&] { status = body(); });
  return status_in_c(reported == tcim::OK ? status : reported);
}

template <typename Handle>
void destroy(const char* what, Handle handle) noexcept {
  if (handle == nullptr) return;
  tcim::internal::guarded(what, [&] { Handles<Handle>::all().take(handle); });
}

inline std::string text(const char* value, const char* name) {
  if (value == nullptr) fail(ErrorCode::Argument, name, " is NULL");
  return value;
}

// A handle of what the facade returned; NULL if that describes nothing, which the facade has reported. A dummy input
// has an info and no memory.
inline tcim_tensor_info_t handle_of(tcim::TensorInfo info) {
  return info.DataTypeSize() == 0 ? nullptr : make<tcim_tensor_info_t>(std::move(info));
}

inline tcim_tensor_t handle_of(tcim::Tensor tensor) {
  return tensor.Info().DataTypeSize() == 0 ? nullptr : make<tcim_tensor_t>(std::move(tensor));
}

}  // namespace tcim_lite::c_api
