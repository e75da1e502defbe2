// The busy meter with made-up times, and the ledger with threads.
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "check.h"
#include "runtime/busy_meter.h"
#include "runtime/devices.h"
#include "runtime/ledger.h"

namespace tcim_lite {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kStart = 1000 * kSecond;

bool close_to(double value, double expected) { return value > expected - 0.08 && value < expected + 0.08; }

TEST(share_of_recent_time) {
  BusyMeter meter;
  CHECK_EQ(meter.share(kStart), 0.0);
  CHECK(!meter.busy());
  for (uint64_t i = 0; i < 100; ++i) {  // a quarter of two seconds
    meter.begin(kStart + i * kSecond / 50);
    CHECK(meter.busy());
    meter.end(kStart + i * kSecond / 50 + kSecond / 200);
  }
  CHECK(!meter.busy());
  CHECK(close_to(meter.share(kStart + 2 * kSecond), 0.25));
  CHECK(close_to(meter.share(kStart + 2 * kSecond + kSecond / 2), 0.125));
  CHECK_EQ(meter.share(kStart + 4 * kSecond), 0.0);
}

TEST(work_in_progress_counts) {
  BusyMeter meter;
  meter.begin(kStart);
  CHECK(close_to(meter.share(kStart + kSecond / 2), 0.5));
  CHECK_EQ(meter.share(kStart + 100 * kSecond), 1.0);
  meter.end(kStart + 100 * kSecond);
  CHECK(close_to(meter.share(kStart + 100 * kSecond), 1.0));
  CHECK(close_to(meter.share(kStart + 100 * kSecond + kSecond / 2), 0.5));
}

// As a reader in another process may see it, which took the time first.
TEST(work_begun_after_the_question_does_not_count) {
  BusyMeter meter;
  meter.begin(kStart + kSecond / 1000);
  CHECK_EQ(meter.share(kStart), 0.0);
}

TEST(work_at_once_counts_once) {
  BusyMeter meter;
  meter.begin(kStart);
  meter.begin(kStart + kSecond / 10);
  meter.end(kStart + 2 * kSecond / 10);
  CHECK(meter.busy());
  meter.end(kStart + 4 * kSecond / 10);
  CHECK(!meter.busy());
  CHECK(close_to(meter.share(kStart + kSecond - 1), 0.4));
  meter.clear();
  CHECK_EQ(meter.share(kStart + kSecond - 1), 0.0);
}

// The start is kept in 48 bits of 64 ns ticks: it wraps within a piece of work.
TEST(the_start_may_wrap) {
  const uint64_t wrap = uint64_t(1) << 54;
  BusyMeter meter;
  meter.begin(wrap - kSecond / 10);
  CHECK(close_to(meter.share(wrap + kSecond / 10), 0.2));
  meter.end(wrap + kSecond / 10);
  CHECK(close_to(meter.share(wrap + kSecond / 10), 0.2));
}

TEST(meter_with_threads) {
  BusyMeter meter;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&meter] {
      for (int n = 0; n < 20000; ++n) {
        meter.begin();
        meter.end();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(!meter.busy());
  CHECK(meter.share() > 0.0 && meter.share() <= 1.0);
}

DeviceProfile small_profile(uint64_t bytes) {
  DeviceProfile profile;
  profile.name = "small";
  profile.memory_bytes = bytes;
  return profile;
}

TEST(capacity_with_threads) {
  Device device(small_profile(1000), cpu_backend());
  std::vector<std::thread> threads;
  std::atomic<int> granted{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&device, &granted, i] {
      for (int n = 0; n < 5000; ++n) {
        try {
          const Charge charge(device, 400, MemoryUse::Tensors, "holder " + std::to_string(i));
          granted.fetch_add(1);
          if (device.memory_used() > 800) report_failure(__FILE__, __LINE__, "more than two of 400 bytes in 1000");
        } catch (const Error&) {
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(granted > 0);
  CHECK_EQ(device.memory_used(), 0u);
  CHECK_EQ(device.usage().memory_used.load(), 0u);
  CHECK_EQ(device.ledger().describe(), "nothing");
}

TEST(charges) {
  Device device(small_profile(1000), cpu_backend());
  CHECK_ERROR(Charge(device, ~uint64_t(0), MemoryUse::Weights, "huge.hmm"), "more for weights of huge.hmm do not fit");
  Charge first(device, 600, MemoryUse::Weights, "a.hmm");
  Charge second(device, 100, MemoryUse::Scratch, "a.hmm");
  const Charge third(device, 300, MemoryUse::Tensors, "");
  CHECK_ERROR(Charge(device, 1, MemoryUse::Tensors, "b.hmm"),
              "1 bytes more for tensors of b.hmm do not fit, 1000 bytes of 1000 bytes are in use: 600 bytes weights of "
              "a.hmm, 300 bytes tensors of the program, 100 bytes scratch of a.hmm;");
  second = std::move(first);  // gives nothing back before `first` goes
  first = Charge();
  CHECK_EQ(device.memory_used(), 900u);
  CHECK_EQ(device.usage().memory_used.load(), 900u);
  const Charge again(device, 100, MemoryUse::Weights, "a.hmm");
  CHECK_EQ(device.ledger().describe(), "700 bytes weights of a.hmm, 300 bytes tensors of the program");
}

TEST(bytes_text) {
  CHECK_EQ(bytes_text(0), "0 bytes");
  CHECK_EQ(bytes_text(10239), "10239 bytes");
  CHECK_EQ(bytes_text(10240), "10.0 KiB");
  CHECK_EQ(bytes_text(3 << 20), "3.0 MiB");
  CHECK_EQ(bytes_text(uint64_t(5) << 50), "5120.0 TiB");
}

}  // namespace
}  // namespace tcim_lite

int main() { return run_tests(); }
