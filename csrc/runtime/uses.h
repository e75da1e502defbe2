// Queued runs of one set of bindings. All buffers of the set refer to this one count. A batch decode binds hundreds of
// buffers; if each had a count that every run writes, a run would take tens of microseconds longer after its thread has
// moved to another core. Thread-safe; the caller of end() keeps the object alive during the call.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/spin.h"

namespace tcim_lite {

class Uses {
 public:
  void begin() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  void end() noexcept {
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) count_.notify_all();
  }
  bool idle() const noexcept { return count_.load(std::memory_order_acquire) == 0; }
  void wait_idle() const noexcept {
    if (spin_until([this] { return idle(); })) return;
    for (int32_t count; (count = count_.load(std::memory_order_acquire)) != 0;)
      count_.wait(count, std::memory_order_acquire);
  }

 private:
  std::atomic<int32_t> count_{0};
};

}  // namespace tcim_lite
