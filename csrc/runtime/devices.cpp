#include "runtime/devices.h"

#include <map>
#include <utility>

#include "base/env.h"
#include "base/error.h"
#include "runtime/api_call.h"
#include "runtime/stream.h"

namespace tcim_lite {
namespace {

Backend& chosen_backend() {
  const std::string kind = env_text("TCIM_LITE_DEVICE").value_or("cpu");
  if (kind == "cpu") return cpu_backend();
  if (kind == "cuda") return cuda_backend();
  fail(ErrorCode::Unsupported, "TCIM_LITE_DEVICE='", kind, "': expected cpu or cuda");
}

struct OpenedDevices {
  std::mutex mutex;  // of the map; a leaf
  std::map<int, std::unique_ptr<Device>> devices;
  std::mutex publishing;  // held while usage is published
};

// Never destroyed: tensors may outlive every static object.
OpenedDevices& opened() {
  static auto* const instance = new OpenedDevices;
  return *instance;
}

}  // namespace

std::string resolve_backend(const std::string& name) {
  std::string asked = name, named_by;  // the variable
  for (const char* variable : {"TCIM_FORCE_BACKEND", "TCIM_BACKEND"}) {
    if (!asked.empty()) break;
    asked = env_text(variable).value_or("");
    named_by = variable + std::string(": ");
  }
  if (asked.empty()) return "Xh2HalBackend";
  if (asked == "Xh2HalBackend" || asked == "Xh2aHalBackend" || asked == "xh2") return "Xh2HalBackend";
  if (asked == "Xh1HdiBackend") {
    fail(ErrorCode::Unsupported, named_by, "backend 'Xh1HdiBackend' (M30) is not emulated; use Xh2HalBackend");
  }
  fail(ErrorCode::Argument, named_by, "unknown backend '", asked, "'; expected Xh2HalBackend, Xh2aHalBackend or xh2");
}

Device::Device(DeviceProfile profile, Backend& backend)
    : profile_(std::move(profile)), backend_(backend), default_stream_(std::make_shared<Stream>()) {}

bool Device::take_memory(uint64_t bytes) {
  DeviceUsage& shown = usage();
  const uint64_t capacity = profile_.memory_bytes;
  uint64_t used = memory_used_.load(std::memory_order_relaxed);
  do {
    if (capacity != 0 && (bytes > capacity || used > capacity - bytes)) return false;
  } while (!memory_used_.compare_exchange_weak(used, used + bytes));
  show_memory_used(shown);
  return true;
}

void Device::give_memory(uint64_t bytes) noexcept {
  memory_used_.fetch_sub(bytes);
  if (DeviceUsage* usage = usage_if_any()) show_memory_used(*usage);
}

// The thread that changes the state last also publishes last.
void Device::show_memory_used(DeviceUsage& usage) const noexcept {
  uint64_t used;
  do {
    used = memory_used_.load();
    usage.memory_used.store(used);
  } while (memory_used_.load() != used);
}

void Device::set_dvfs_mode(DvfsMode mode) noexcept {
  mode_.store(mode);
  if (DeviceUsage* usage = usage_if_any()) usage->mode.store(mode);
}

DeviceUsage& Device::publish() {
  const std::lock_guard lock(opened().publishing);
  if (DeviceUsage* usage = usage_if_any()) return *usage;
  DeviceUsage* usage = share_usage(profile_);
  if (usage == nullptr) {
    private_usage_ = std::make_unique<DeviceUsage>(profile_);
    usage = private_usage_.get();
  }
  usage->mode.store(mode_.load());
  show_memory_used(*usage);
  usage->complete.store(1, std::memory_order_release);
  usage_.store(usage, std::memory_order_release);
  return *usage;
}

Device& use_device(int id) {
  Backend& backend = chosen_backend();
  DeviceProfile profile = visible_device(id);
  if (Device* device = find_device(id)) return *device;
  if (profile.memory_bytes == 0) profile.memory_bytes = backend.memory_bytes(id);
  // Not under the lock: a device has a stream, and the list of streams is locked while runs look devices up. Another
  // thread may be first.
  auto fresh = std::make_unique<Device>(std::move(profile), backend);
  const std::lock_guard lock(opened().mutex);
  return *opened().devices.try_emplace(id, std::move(fresh)).first->second;
}

Device* find_device(int id) {
  const std::lock_guard lock(opened().mutex);
  const auto found = opened().devices.find(id);
  return found == opened().devices.end() ? nullptr : found->second.get();
}

uint64_t device_memory_used(int id) {
  return api_call(
      host_call<"device_memory_used">, [&](CallEvent& event) { event.device_id = id; },
      [&]() -> uint64_t {
        const Device* device = find_device(id);
        return device == nullptr ? 0 : device->memory_used();
      });
}

void forget_device_usage() noexcept {
  for (const auto& [id, device] : opened().devices) device->forget_usage();
  abandon_shared_usage();
}

}  // namespace tcim_lite
