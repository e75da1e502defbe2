// How much of the last second something was busy. Lock-free and without pointers, so that it can be in shared memory. A
// value read during a write is wrong by at most one piece of work.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace tcim_lite {

class BusyMeter {
 public:
  // Nanoseconds of a clock that all processes share.
  static uint64_t now() noexcept {
    return uint64_t(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
  }

  // Pieces of work may overlap; the time counts once.
  void begin(uint64_t at = now()) noexcept {
    uint64_t old = running_.load(std::memory_order_relaxed);
    while (
        !running_.compare_exchange_weak(old, old < kOne ? kOne | ticks(at) : old + kOne, std::memory_order_relaxed)) {
    }
  }
  void end(uint64_t at = now()) noexcept {
    uint64_t old = running_.load(std::memory_order_relaxed);
    while (!running_.compare_exchange_weak(old, old < 2 * kOne ? 0 : old - kOne, std::memory_order_relaxed)) {
    }
    if (old < 2 * kOne) add(at - since(old, at), at);
  }

  bool busy() const noexcept { return running_.load(std::memory_order_relaxed) >= kOne; }

  // In [0, 1].
  double share(uint64_t at = now()) const noexcept {
    const uint64_t last = at / kBucketNs, first = last - kWindow;
    uint64_t total = 0;
    for (const auto& bucket : buckets_) {
      const uint64_t value = bucket.load(std::memory_order_relaxed);
      if (uint32_t(last) - uint32_t(value >> 32) <= kWindow) total += uint32_t(value);
    }
    const uint64_t elapsed = at - first * kBucketNs;
    const uint64_t running = running_.load(std::memory_order_relaxed);
    // Work that has begun after `at` wraps around.
    if (const uint64_t age = since(running, at); running >= kOne && age < kMostAge) total += std::min(age, elapsed);
    return std::min(1.0, double(total) / double(elapsed));
  }

  void clear() noexcept {
    for (auto& bucket : buckets_) bucket.store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr uint64_t kBucketNs = 1 << 26;  // 67 ms
  static constexpr uint32_t kWindow = 14;         // whole buckets, and the current one
  // running_: the number of pieces in progress, above 48 bits that say since when, in ticks of 64 ns (208 days).
  static constexpr uint64_t kOne = uint64_t(1) << 48;
  static constexpr uint64_t kMostAge = kOne << 5;  // half of what the ticks can tell apart: 104 days

  static uint64_t ticks(uint64_t ns) noexcept { return (ns >> 6) & (kOne - 1); }
  static uint64_t since(uint64_t running, uint64_t at) noexcept { return ((ticks(at) - running) & (kOne - 1)) << 6; }

  void add(uint64_t from, uint64_t to) noexcept {
    const uint64_t last = to / kBucketNs;
    for (uint64_t number = std::max(from / kBucketNs, last - kWindow); number <= last; ++number) {
      const uint64_t begin = std::max(from, number * kBucketNs), end = std::min(to, (number + 1) * kBucketNs);
      auto& bucket = buckets_[number % buckets_.size()];
      const uint64_t label = uint64_t(uint32_t(number)) << 32;
      uint64_t old = bucket.load(std::memory_order_relaxed);
      while (!bucket.compare_exchange_weak(old, ((old ^ label) >> 32 == 0 ? old : label) + (end - begin),
                                           std::memory_order_relaxed)) {
      }
    }
  }

  std::atomic<uint64_t> running_{0};
  std::array<std::atomic<uint64_t>, 16> buckets_{};  // the bucket's number above its busy nanoseconds
};

}  // namespace tcim_lite
