// Logical devices. Which exist comes from the environment and is looked up when asked for; importing and counting
// create nothing (C-20).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"

namespace tcim_lite {

class Stream;

struct DeviceProfile {
  int id = 0;
  std::string name = "xh2 (emulated)";
  uint64_t memory_bytes = 0;  // 0: whatever the machine has
  int cores = 2;
  int clock_mhz = 1400;
};

// HOUMO_VISIBLE_DEVICES, else the profile file TCIM_LITE_DEVICES, else TCIM_LITE_DEVICE_NUM, else one device.
std::vector<DeviceProfile> visible_devices();

// The canonical name of a backend; "" means TCIM_BACKEND or the default. Throws Error(Unsupported) for the M30's and
// Error(Argument) for a name nobody knows.
std::string resolve_backend(const std::string& name);

// What device memory is used for: the lines of the ledger in an out-of-memory error.
enum class MemoryUse { Weights, Tensors, Scratch };

// A logical device in use. Lives until the process ends. Thread-safe.
class Device {
 public:
  Device(DeviceProfile profile, Backend& backend);

  int id() const noexcept { return profile_.id; }
  const DeviceProfile& profile() const noexcept { return profile_; }
  Backend& backend() const noexcept { return backend_; }

  // What modules without a stream of their own share, so that prefill and decode stay in order.
  const std::shared_ptr<Stream>& default_stream() const noexcept { return default_stream_; }

  // Counts memory against the capacity. Throws Error(Device) when it does not fit.
  void charge(uint64_t bytes, MemoryUse use);
  void discharge(uint64_t bytes, MemoryUse use) noexcept;
  uint64_t memory_used() const noexcept { return memory_used_.load(std::memory_order_relaxed); }

 private:
  const DeviceProfile profile_;
  Backend& backend_;
  const std::shared_ptr<Stream> default_stream_;
  std::atomic<uint64_t> memory_used_{0};
  std::array<std::atomic<uint64_t>, 3> ledger_{};  // [MemoryUse]; adds up to memory_used_
};

// Throws Error(Device) for an id that does not exist, Error(Unsupported) for a TCIM_LITE_DEVICE that is not built.
Device& use_device(int id);

// Bytes in use on a device; 0 for one nothing was loaded on.
uint64_t device_memory_used(int id);

}  // namespace tcim_lite
