// Queued runs of one set of bindings. All buffers of the set refer to this one count. A batch decode binds hundreds of
// buffers; if each had a count that every run writes, a run would take tens of microseconds longer after its thread has
// moved to another core. Thread-safe; the caller of end() keeps the object alive during the call.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "runtime/spin.h"

namespace tcim_lite {

class Uses {
 public:
  void begin() noexcept { begun_.fetch_add(1, std::memory_order_relaxed); }
  void end() noexcept {
    ended_.fetch_add(1);  // before the question: whoever waits says so before it reads this
    if (waiters_.load() == 0) return;
    {
      const std::lock_guard lock(mutex_);
    }
    ended_one_.notify_all();
  }

  // No run begins any more.
  void retire() noexcept { retired_.store(true, std::memory_order_release); }
  bool over() const noexcept { return retired_.load(std::memory_order_acquire) && idle(); }

  uint64_t begun() const noexcept { return begun_.load(std::memory_order_relaxed); }
  bool idle() const noexcept {
    const uint64_t ended = ended_.load(std::memory_order_acquire);  // first, so that all that ended counts as begun
    return ended == begun();
  }
  void wait_idle() const noexcept {
    const auto idle = [this] { return this->idle(); };
    if (!spin_until(idle)) sleep([&](auto& lock) { ended_one_.wait(lock, idle); });
  }
  // Until `count` runs have ended, but not longer than `limit`; whether they have.
  bool wait_ended(uint64_t count, std::chrono::milliseconds limit) const noexcept {
    bool ended = spin_until([&] { return ended_.load() >= count; });
    if (!ended)
      sleep([&](auto& lock) { ended = ended_one_.wait_for(lock, limit, [&] { return ended_.load() >= count; }); });
    return ended;
  }

 private:
  template <typename Wait>
  void sleep(const Wait& wait) const noexcept {
    std::unique_lock lock(mutex_);
    waiters_.fetch_add(1);
    wait(lock);
    waiters_.fetch_sub(1);
  }

  std::atomic<uint64_t> begun_{0};
  std::atomic<uint64_t> ended_{0};
  std::atomic<bool> retired_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_one_;
  mutable std::atomic<int> waiters_{0};
};

}  // namespace tcim_lite
