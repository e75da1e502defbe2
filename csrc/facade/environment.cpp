// The free functions, DevManager.
#include <utility>

#include "base/error.h"
#include "facade/access.h"
#include "facade/report.h"

namespace tcim {

using namespace internal;

std::string GetVersion() {
  return guarded_or("GetVersion", std::string(), [] { return tcim_lite::version_text(); });
}

int GetDeviceNum(const std::string& backend) {
  try {
    tcim_lite::resolve_backend(backend);
  } catch (const tcim_lite::Error&) {
    return 0;
  }
  return guarded_or("GetDeviceNum", 0, [] { return int(tcim_lite::count_visible_devices()); });
}

DevManagerState internal::Access::devices(std::vector<int32_t> ids, std::string backend) {
  if (ids.empty()) tcim_lite::fail(tcim_lite::ErrorCode::Argument, "the list of device ids is empty");
  for (const int32_t id : ids) {
    if (id < 0) tcim_lite::fail(tcim_lite::ErrorCode::Argument, "device id ", id, ": ids start at 0");
  }
  tcim_lite::resolve_backend(backend);
  return {OK, std::move(ids), std::move(backend)};
}

DevManager DevManager::Create(std::vector<int32_t> device_ids, std::string backend) {
  DevManager made;
  made.impl_ = std::make_shared<DevManagerState>();
  const tcim::Status status =
      guarded("DevManager::Create", [&] { *made.impl_ = Access::devices(std::move(device_ids), std::move(backend)); });
  made.impl_->status = status;
  return made;
}

DevManager DevManager::Create(int device_id, std::string backend) {
  return Create(std::vector<int32_t>{device_id}, std::move(backend));
}

tcim::Status DevManager::GetInitStatus() const { return impl_ == nullptr ? UNINITIALIZED : impl_->status; }

}  // namespace tcim
