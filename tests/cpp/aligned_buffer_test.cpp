// Memory of released buffers goes to those who overwrite it, never to those who asked for zeros.
#include "base/aligned_buffer.h"

#include <algorithm>
#include <cstring>
#include <thread>
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

void test_a_buffer_is_zero_whatever_was_released() {
  for (const uint64_t bytes : kSizes) {
    fill(AlignedBuffer::unfilled(bytes), 0xa5);
    fill(AlignedBuffer(bytes), 0xa5);
    const AlignedBuffer zeros(bytes);
    CHECK(holds(zeros, 0));
    CHECK_EQ(reinterpret_cast<uintptr_t>(zeros.data()) % 64, 0u);
    CHECK_EQ(reinterpret_cast<uintptr_t>(AlignedBuffer::unfilled(bytes).data()) % 64, 0u);
  }
}

void test_buffers_in_use_share_nothing() {
  for (const uint64_t bytes : kSizes) {
    std::vector<AlignedBuffer> all;
    for (int i = 0; i < 12; ++i) {
      all.push_back(AlignedBuffer::unfilled(bytes));
      fill(all.back(), i);
      if (i % 3 == 2) all.erase(all.begin() + i % 2);
    }
    for (size_t i = 0; i + 1 < all.size(); ++i) CHECK(holds(all[i], int(all[i].data()[0])));
    for (size_t i = 0; i + 1 < all.size(); ++i) CHECK(all[i].data() != all[i + 1].data());
  }
}

void test_a_released_buffer_is_used_again() {
  const std::byte* first = nullptr;
  {
    const AlignedBuffer buffer = AlignedBuffer::unfilled(2 << 20);
    first = buffer.data();
  }
  const AlignedBuffer other = AlignedBuffer::unfilled(3 << 20), again = AlignedBuffer::unfilled(2 << 20);
  CHECK(other.data() != first);
  CHECK(again.data() == first);
}

void test_threads_get_memory_of_their_own() {
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

void test_sizes_that_cannot_be_are_errors() {
  CHECK_ERROR(AlignedBuffer(~uint64_t{0}), "not representable");
  CHECK_ERROR(AlignedBuffer::unfilled(~uint64_t{0}), "not representable");
  CHECK_ERROR(AlignedBuffer::unfilled(uint64_t{1} << 60), "no memory left");
  CHECK(AlignedBuffer::unfilled(0).data() == nullptr);
}

}  // namespace

int main() {
  test_a_buffer_is_zero_whatever_was_released();
  test_buffers_in_use_share_nothing();
  test_a_released_buffer_is_used_again();
  test_threads_get_memory_of_their_own();
  test_sizes_that_cannot_be_are_errors();
  return check_result();
}
