// Bounded busy waiting before a thread goes to sleep: a wake-up costs tens of microseconds, a decode step a few
// thousand.
#pragma once

#include <sched.h>

#include <chrono>

namespace tcim_lite {

// Polls `done` for about 50 microseconds; returns whether it came true. Does not spin on a single CPU.
template <typename Predicate>
bool spin_until(const Predicate& done) {
  static const bool alone = [] {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) < 2;
  }();
  if (done()) return true;
  if (alone) return false;
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield");
#endif
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace tcim_lite
