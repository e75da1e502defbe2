// Logical devices in use. Importing and counting create nothing (C-20); a device is made when first asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "backends/backend.h"
#include "base/no_copy.h"
#include "runtime/device_profile.h"
#include "runtime/device_usage.h"
#include "runtime/ledger.h"

namespace tcim_lite {

class Stream;

// The canonical name of a backend; "" means TCIM_FORCE_BACKEND, TCIM_BACKEND or the default. Throws
// Error(Unsupported) for the M30's and Error(Argument) for an unknown name.
std::string resolve_backend(const std::string& name);

// Lives until the process ends. Thread-safe.
class Device {
 public:
  Device(DeviceProfile profile, Backend& backend);

  int id() const noexcept { return profile_.id; }
  const DeviceProfile& profile() const noexcept { return profile_; }
  Backend& backend() const noexcept { return backend_; }

  // What modules without a stream of their own share, so that prefill and decode stay in order.
  const std::shared_ptr<Stream>& default_stream() const noexcept { return default_stream_; }

  // Memory is counted through Charge (ledger.h). False: it does not fit.
  bool take_memory(uint64_t bytes);
  void give_memory(uint64_t bytes) noexcept;
  uint64_t memory_used() const noexcept { return memory_used_.load(std::memory_order_relaxed); }
  Ledger& ledger() noexcept { return ledger_; }

  // What others see of it. The first use makes the process appear in smi.
  DeviceUsage& usage() {
    DeviceUsage* usage = usage_.load(std::memory_order_acquire);
    return usage != nullptr ? *usage : publish();
  }
  // Null before the first use.
  DeviceUsage* usage_if_any() const noexcept { return usage_.load(std::memory_order_acquire); }

  DvfsMode dvfs_mode() const noexcept { return mode_.load(std::memory_order_relaxed); }
  void set_dvfs_mode(DvfsMode mode) noexcept;
  // A device that throttles (layers/faults). 0: no limit.
  void limit_clock(int mhz) { usage().clock_limit_mhz.store(mhz, std::memory_order_relaxed); }

  // In the child of a fork, which has not used the device yet.
  void forget_usage() noexcept { usage_.store(nullptr, std::memory_order_relaxed); }

 private:
  DeviceUsage& publish();
  void show_memory_used(DeviceUsage& usage) const noexcept;

  const DeviceProfile profile_;
  Backend& backend_;
  const std::shared_ptr<Stream> default_stream_;
  // The authoritative state, in memory that a fork copies; usage_ only publishes it.
  std::atomic<uint64_t> memory_used_{0};
  std::atomic<DvfsMode> mode_{DvfsMode::Performance};
  Ledger ledger_;
  std::atomic<DeviceUsage*> usage_{nullptr};
  std::unique_ptr<DeviceUsage> private_usage_;  // where sharing fails
};

// Counts the time of this scope as busy time of the devices.
class DeviceWork : public NoCopy {
 public:
  explicit DeviceWork(std::span<Device* const> devices) : devices_(devices) {
    for (Device* device : devices_) device->usage().busy.begin();
  }
  ~DeviceWork() {
    for (Device* device : devices_) device->usage().busy.end();
  }

 private:
  const std::span<Device* const> devices_;
};

// Throws Error(Device) for an id that does not exist, Error(Unsupported) for a TCIM_LITE_DEVICE that is not built.
Device& use_device(int id);

// Null for a device nobody has used.
Device* find_device(int id);

// Bytes in use on a device; 0 for one nothing was loaded on.
uint64_t device_memory_used(int id);

// For the fork handlers (api_call.cpp).
void forget_device_usage() noexcept;

}  // namespace tcim_lite
