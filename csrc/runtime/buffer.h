// Reference-counted memory on the host, on a device, or in slabs on several devices. Tensors, ports and queued runs
// share it. Offsets and sizes are of the logical bytes, whatever the slabs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "base/aligned_buffer.h"
#include "base/no_copy.h"
#include "runtime/ledger.h"
#include "runtime/placement.h"
#include "runtime/uses.h"

namespace tcim_lite {

class Device;

constexpr int kHost = -1;

// What device memory must hold when it is made.
enum class Content {
  Zero,         // states
  Unspecified,  // zero here, but callers must not rely on it
  HandedOn,     // the same; a run writes what the next one reads, so the device needs it more often than the host
};

class Buffer : public NoCopy {
 public:
  // Zeroed; a listener may fill memory of which the contents are unspecified. Throw Error(Device) when a device is full
  // or does not exist. `holder` as in Charge.
  static std::shared_ptr<Buffer> on_host(uint64_t bytes);
  static std::shared_ptr<Buffer> unfilled_on_host(uint64_t bytes);  // for callers that overwrite all of it
  static std::shared_ptr<Buffer> on_device(int device_id, uint64_t bytes, std::string_view holder = {},
                                           Content content = Content::Unspecified);
  static std::shared_ptr<Buffer> on_devices(SlabLayout layout, uint64_t bytes, std::string_view holder = {},
                                            Content content = Content::Unspecified);
  // Memory that another owner holds, on the host or on `device`, and that outlives the buffer. Not counted against the
  // device.
  static std::shared_ptr<Buffer> wrap(void* data, uint64_t bytes, Device* device = nullptr);

  uint64_t handle() const noexcept { return handle_; }
  uint64_t bytes() const noexcept { return bytes_; }
  bool on_host() const noexcept { return slabs_.empty(); }
  int device_id() const noexcept { return on_host() ? kHost : layout_.device_ids.front(); }  // of rank 0
  const SlabLayout& layout() const noexcept { return layout_; }                              // of the host: no devices

  // All bytes, if they are in one piece that the host can access; else null, and read() and write() must be used.
  std::byte* host_data() const noexcept { return host_data_.load(std::memory_order_relaxed); }
  // Device memory of this rank.
  std::byte* slab(size_t rank) const noexcept { return slabs_[rank].memory->data(); }

  void read(uint64_t offset, uint64_t bytes, std::byte* host) const;
  void write(uint64_t offset, uint64_t bytes, const std::byte* host);

  // Queued runs that use the buffer, of every set of bindings that it is in. Host reads and writes wait until there are
  // none.
  void add_uses(std::shared_ptr<const Uses> uses);
  void wait_idle() const noexcept;
  // The same for the runs that are queued by now. Interruptible, so with no lock held: throws Interrupted.
  void wait_for_runs() const;
  bool idle() const noexcept { return find_busy() == nullptr; }

  // The program has a pointer into this host memory, so from now on it may write there without a call.
  void hand_out() noexcept { handed_out_.store(true, std::memory_order_relaxed); }
  // Such memory, unless runs write there: what it holds is then theirs.
  bool handed_out() const noexcept {
    return handed_out_.load(std::memory_order_relaxed) && !written_by_runs_.load(std::memory_order_relaxed);
  }

  // The memory, for an array that uses it from now on and keeps the buffer alive; null if runs write into the memory.
  std::byte* lend_to_array() noexcept;
  // Runs will write into this host buffer (Module::set_output). Arrays keep the memory that they already use, and the
  // buffer continues with a copy: no run changes an array that a caller holds (C-11).
  void mark_written_by_runs();

 private:
  struct Slab {
    Device* device;
    std::shared_ptr<DeviceMemory> memory;
    Charge charge;
  };

  Buffer() noexcept;
  static std::shared_ptr<Buffer> of_host(AlignedBuffer memory);
  std::shared_ptr<const Uses> find_busy() const noexcept;
  void add_slab(Device& device, uint64_t bytes, std::string_view holder, Content content);
  template <typename Visit>
  void for_pieces(uint64_t offset, uint64_t bytes, const Visit& visit) const;

  const uint64_t handle_;
  std::atomic<std::byte*> host_data_{nullptr};
  uint64_t bytes_ = 0;
  AlignedBuffer host_;
  std::vector<Slab> slabs_;
  SlabLayout layout_;
  mutable std::mutex uses_mutex_;
  // Of dropped bindings, too, until others come: those are dropped without a lock, as a module may be destroyed while
  // another thread forks; and who finds them idle sees what their runs wrote, which an expired pointer would not
  // ensure.
  std::vector<std::shared_ptr<const Uses>> uses_;
  std::atomic<bool> handed_out_{false};
  std::mutex arrays_mutex_;
  bool lent_to_arrays_ = false;
  std::atomic<bool> written_by_runs_{false};
  AlignedBuffer kept_for_arrays_;
};

}  // namespace tcim_lite
