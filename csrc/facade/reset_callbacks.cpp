#include "facade/reset_callbacks.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/no_copy.h"
#include "runtime/device_control.h"

namespace tcim::internal {
namespace {

struct Callback {
  dev_ctrl::ResetCallbackHandle handle;
  int device_id;
  ResetPhase phase;
  dev_ctrl::ResetCallback function;
};

struct Registry {
  std::mutex mutex;  // never held while a callback runs
  dev_ctrl::ResetCallbackHandle last = 0;
  std::vector<std::shared_ptr<const Callback>> callbacks;  // in registration order
  std::map<int, pid_t> resetting;                          // the process too: the child of a callback may reset
};

// Never destroyed: callbacks may run while the process ends.
Registry& registry() {
  static Registry& only = *new Registry;
  return only;
}

// A reset of a device, of which there is one at a time.
class Turn : public tcim_lite::NoCopy {
 public:
  explicit Turn(int device_id) : device_id_(device_id) {
    const std::lock_guard lock(registry().mutex);
    const auto [at, first] = registry().resetting.try_emplace(device_id, getpid());
    if (!first && at->second == getpid())
      tcim_lite::fail(tcim_lite::ErrorCode::Unsupported, "a reset of device ", device_id,
                      " is under way; this one is not done");
    at->second = getpid();
  }
  ~Turn() {
    const std::lock_guard lock(registry().mutex);
    registry().resetting.erase(device_id_);
  }

 private:
  const int device_id_;
};

// The first failure is kept, further ones go to the log.
template <typename Step>
void attempt(std::exception_ptr& first, const Step& step) {
  const auto log_further = [](const char* text) {
    tcim_lite::log(tcim_lite::LogLevel::Warn,
                   tcim_lite::concat("HalDevice::IpuReset: a further callback failed: ", text));
  };
  try {
    step();
  } catch (const std::exception& error) {
    if (first != nullptr) return log_further(error.what());
    first = std::current_exception();
  } catch (...) {
    if (first != nullptr) return log_further("an exception of unknown type");
    first = std::current_exception();
  }
}

void call(int device_id, ResetPhase phase, std::exception_ptr& first) {
  std::vector<std::shared_ptr<const Callback>> callbacks;
  {
    const std::lock_guard lock(registry().mutex);
    callbacks = registry().callbacks;
  }
  for (const std::shared_ptr<const Callback>& each : callbacks) {
    if (each->device_id != device_id || each->phase != phase) continue;
    {
      const std::lock_guard lock(registry().mutex);
      const auto& now = registry().callbacks;
      if (std::find(now.begin(), now.end(), each) == now.end()) continue;
    }
    attempt(first, [&] { each->function(device_id); });
  }
}

}  // namespace

dev_ctrl::ResetCallbackHandle add_reset_callback(int device_id, ResetPhase phase, dev_ctrl::ResetCallback callback) {
  const std::lock_guard lock(registry().mutex);
  const dev_ctrl::ResetCallbackHandle handle = ++registry().last;
  registry().callbacks.push_back(
      std::make_shared<const Callback>(Callback{handle, device_id, phase, std::move(callback)}));
  return handle;
}

bool remove_reset_callback(dev_ctrl::ResetCallbackHandle handle) {
  std::shared_ptr<const Callback> removed;  // destroyed after the lock: a function may hold anything
  const std::lock_guard lock(registry().mutex);
  auto& callbacks = registry().callbacks;
  const auto at =
      std::find_if(callbacks.begin(), callbacks.end(), [&](const auto& each) { return each->handle == handle; });
  if (at == callbacks.end()) return false;
  removed = *at;
  callbacks.erase(at);
  return true;
}

void reset_with_callbacks(int device_id) {
  std::exception_ptr first;
  {
    const Turn turn(device_id);
    call(device_id, ResetPhase::Before, first);
    attempt(first, [&] { tcim_lite::reset_device(device_id); });
    call(device_id, ResetPhase::After, first);
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace tcim::internal
