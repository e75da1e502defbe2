// Reference-counted memory on the host or a device. Tensors, slots and queued runs share it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "backends/backend.h"
#include "base/aligned_buffer.h"

namespace tcim_lite {

class Device;

constexpr int kHost = -1;

class Buffer {
 public:
  // Zeroed.
  static std::shared_ptr<Buffer> on_host(uint64_t bytes);
  // Zeroed. Throws Error(Device) when the device is full.
  static std::shared_ptr<Buffer> on_device(Device& device, uint64_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const noexcept { return data_; }
  uint64_t bytes() const noexcept { return bytes_; }
  Device* device() const noexcept { return device_; }  // null: host
  int device_id() const noexcept;                      // kHost for the host

  // Queued runs that use the buffer. Host reads and writes wait until there are none (spec tcim-api 7.3).
  void begin_use() noexcept { uses_.fetch_add(1, std::memory_order_relaxed); }
  void end_use() noexcept;
  void wait_idle() const noexcept;

  // A host buffer that runs write into (Module::set_output); numpy() copies it instead of sharing it.
  void mark_written_by_runs() noexcept { written_by_runs_ = true; }
  bool written_by_runs() const noexcept { return written_by_runs_; }

 private:
  Buffer() = default;

  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  Device* device_ = nullptr;
  AlignedBuffer host_;
  std::shared_ptr<DeviceMemory> memory_;
  std::atomic<int32_t> uses_{0};
  std::atomic<bool> written_by_runs_{false};
};

}  // namespace tcim_lite
