// Memory of released buffers goes to those who overwrite it, never to those who asked for zeros.
#include "base/aligned_buffer.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"

using tcim_lite::AlignedBuffer;

namespace {

constexpr uint64_t kSizes[] = {1, 64, 4096, 64 << 10, (64 << 10) + 1, 1 << 20, (1 << 20) + 1, 3 << 20, 9 << 20};

void fill(const AlignedBuffer& buffer, int value) { std::memset(buffer.data(), value, buffer.bytes()); }
bool holds(const AlignedBuffer& buffer, int value) {
  return std::all_of(buffer.data(), buffer.data() + buffer.bytes(),
                     [&](std::byte byte) { return byte == std::byte(value); });
}

uint64_t pages_in_use() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages;
}

TEST(a_buffer_is_zero_whatever_was_released) {
  for (const uint64_t bytes : kSizes) {
    fill(AlignedBuffer::unfilled(bytes), 0xa5);
    fill(AlignedBuffer(bytes), 0xa5);
    const AlignedBuffer zeros(bytes);
    CHECK(holds(zeros, 0));
    CHECK_EQ(reinterpret_cast<uintptr_t>(zeros.data()) % 64, 0u);
    CHECK_EQ(reinterpret_cast<uintptr_t>(AlignedBuffer::unfilled(bytes).data()) % 64, 0u);
  }
}

TEST(buffers_in_use_share_nothing) {
  for (const uint64_t bytes : kSizes) {
    std::vector<std::pair<AlignedBuffer, int>> all;
    for (int value = 0; value < 12; ++value) {
      all.emplace_back(AlignedBuffer::unfilled(bytes), value);
      fill(all.back().first, value);
      if (value % 3 == 2) all.erase(all.begin() + value % 2);
    }
    for (const auto& [buffer, value] : all) CHECK(holds(buffer, value));
  }
}

TEST(a_released_buffer_is_used_again) {
  const std::byte* first = nullptr;
  {
    const AlignedBuffer buffer = AlignedBuffer::unfilled(2 << 20);
    first = buffer.data();
  }
  const AlignedBuffer other = AlignedBuffer::unfilled(3 << 20), again = AlignedBuffer::unfilled(2 << 20);
  CHECK(other.data() != first);
  CHECK(again.data() == first);
}

TEST(threads_get_memory_of_their_own) {
  std::vector<std::thread> threads;
  for (int value = 1; value <= 4; ++value) {
    threads.emplace_back([value] {
      for (int i = 0; i < 200; ++i) {
        const AlignedBuffer buffer = AlignedBuffer::unfilled(100'000);
        fill(buffer, value);
        CHECK(holds(buffer, value));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// In a child, whose limit ends with it.
TEST(memory_that_is_kept_goes_to_who_needs_it) {
  const pid_t child = fork();
  if (child == 0) {
    std::vector<AlignedBuffer> all;
    for (int i = 0; i < 4; ++i) all.emplace_back(8 << 20);
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = pages_in_use() * uint64_t(sysconf(_SC_PAGESIZE)) + (1 << 20);
    setrlimit(RLIMIT_AS, &limit);
    all.clear();
    try {
      const AlignedBuffer large(24 << 20);
      _exit(0);
    } catch (const tcim_lite::Error&) {
      _exit(1);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
}

TEST(sizes_that_cannot_be_are_errors) {
  CHECK_ERROR(AlignedBuffer(~uint64_t{0}), "not representable");
  CHECK_ERROR(AlignedBuffer::unfilled(~uint64_t{0}), "not representable");
  CHECK_ERROR(AlignedBuffer::unfilled(uint64_t{1} << 60), "no memory left");
  CHECK(AlignedBuffer::unfilled(0).data() == nullptr);
}

}  // namespace

int main() { return run_tests(); }
