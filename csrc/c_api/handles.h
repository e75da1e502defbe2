// The handles of tcim_c_api.h. They are numbers, never addresses and never given twice, so one that was destroyed or
// never made is found out.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "tcim/tcim_c_api.h"
#include "tcim/tcim_runtime.h"

namespace tcim_lite::c_api {

struct NamedModule {
  tcim::Module module;
  std::mutex mutex;
  std::set<std::string> names;  // those that were returned as pointers
};

// What handles of a type stand for, and what messages call it.
template <typename Handle>
struct Kind;

#define TCIM_LITE_HANDLE(handle, object, word) \
  template <>                                  \
  struct Kind<handle> {                        \
    using Object = object;                     \
    static constexpr const char* kName = word; \
  }
TCIM_LITE_HANDLE(tcim_dev_manager_t, tcim::DevManager, "dev_manager");
TCIM_LITE_HANDLE(tcim_weight_manager_t, tcim::Module::WeightManager, "weight_manager");
TCIM_LITE_HANDLE(tcim_module_option_t, tcim::Module::Option, "option");
TCIM_LITE_HANDLE(tcim_module_t, NamedModule, "module");
TCIM_LITE_HANDLE(tcim_tensor_t, tcim::Tensor, "tensor");
TCIM_LITE_HANDLE(tcim_tensor_info_t, tcim::TensorInfo, "info");
TCIM_LITE_HANDLE(tcim_buffer_t, tcim::Buffer, "buffer");
#undef TCIM_LITE_HANDLE

// Odd, as no address of an object is.
inline std::uintptr_t next_number() {
  static std::atomic<std::uintptr_t> next{1};
  return next.fetch_add(2, std::memory_order_relaxed);
}

template <typename Handle>
class Handles {
 public:
  using Object = typename Kind<Handle>::Object;

  // Never destroyed: destructors of static objects may still call.
  static Handles& all() {
    static auto* const instance = new Handles;
    return *instance;
  }

  Handle add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    const std::uintptr_t number = next_number();
    objects_.emplace(number, std::move(object));
    return reinterpret_cast<Handle>(number);
  }

  std::shared_ptr<Object> at(Handle handle) {
    const std::lock_guard lock(mutex_);
    return place(handle)->second;
  }

  // Taken out, so that it ends without the lock.
  std::shared_ptr<Object> take(Handle handle) {
    const std::lock_guard lock(mutex_);
    return std::move(objects_.extract(place(handle)).mapped());
  }

 private:
  auto place(Handle handle) {
    const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found == objects_.end()) {
      const char* kind = Kind<Handle>::kName;
      if (handle == nullptr) fail(ErrorCode::Argument, "the handle of the ", kind, " is NULL");
      fail(ErrorCode::Argument, "the handle of the ", kind,
           " stands for nothing: it was destroyed, or is not what a call for it returned");
    }
    return found;
  }

  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, std::shared_ptr<Object>> objects_;
};

template <typename Handle, typename... Arguments>
Handle make(Arguments&&... arguments) {
  using Object = typename Kind<Handle>::Object;
  return Handles<Handle>::all().add(std::make_shared<Object>(std::forward<Arguments>(arguments)...));
}

// What the handle stands for; kept alive meanwhile, whatever other threads destroy.
template <typename Handle>
std::shared_ptr<typename Kind<Handle>::Object> at(Handle handle) {
  return Handles<Handle>::all().at(handle);
}

}  // namespace tcim_lite::c_api
