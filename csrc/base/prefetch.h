// Hints to the caches for code that is built for every CPU; kernels have their own.
#pragma once

#include <cstdint>

namespace tcim_lite {

// Fetches the lines of [begin, begin + bytes), which are about to be written.
inline void prefetch_for_write(const void* begin, int64_t bytes) {
  constexpr int64_t kLine = 64;
  const auto* const first = static_cast<const char*>(begin);
  const int64_t lead = int64_t(reinterpret_cast<uintptr_t>(begin) % kLine);
  for (int64_t at = -lead; at < bytes; at += kLine) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(first[at]));  // the builtin would fetch for reading: the baseline lacks this
#else
    __builtin_prefetch(first + at, 1);
#endif
  }
}

}  // namespace tcim_lite
