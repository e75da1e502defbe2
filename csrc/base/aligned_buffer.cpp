#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace tcim_lite {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kMapThreshold = 1 << 20;

struct Block {
  std::byte* data = nullptr;
  uint64_t bytes = 0;
};

// Null when the system has no memory. Mapped blocks are zeroed.
std::byte* reserve(uint64_t bytes) {
  if (bytes < kMapThreshold) return static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes));
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

void release(Block block) noexcept {
  if (block.bytes < kMapThreshold) {
    std::free(block.data);
  } else {
    munmap(block.data, block.bytes);
  }
}

// The blocks released last, of sizes that outputs have. Never waits: what a child of a fork finds locked stays so.
class Released {
 public:
  // A null block when there is none.
  Block take(uint64_t bytes) noexcept {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return {};
    for (Block& block : blocks_) {
      if (block.bytes == bytes) return std::exchange(block, {});
    }
    return {};
  }

  // Returns what is to be released instead.
  Block keep(Block block) noexcept {
    if (block.bytes < kLeast || block.bytes > kMost) return block;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return block;
    next_ = (next_ + 1) % kBlocks;
    return std::exchange(blocks_[next_], block);
  }

  // Returns whether there was any.
  bool give_up() noexcept {
    bool any = false;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    for (Block& block : blocks_) {
      if (block.data == nullptr) continue;
      release(std::exchange(block, {}));
      any = true;
    }
    return any;
  }

 private:
  static constexpr uint64_t kLeast = 64 << 10, kMost = 8 << 20;
  static constexpr size_t kBlocks = 4;

  std::mutex mutex_;
  Block blocks_[kBlocks];
  size_t next_ = 0;
};

// Made before anything runs and never destroyed: buffers may outlive static objects, and releasing one allocates
// nothing.
constinit Released g_released;
static_assert(std::is_trivially_destructible_v<Released>);

uint64_t rounded(uint64_t bytes) {
  const uint64_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (whole < bytes) fail(ErrorCode::Device, "cannot allocate ", bytes, " bytes: the size is not representable");
  return whole;
}

std::byte* reserve_or_fail(uint64_t bytes) {
  std::byte* data = reserve(bytes);
  if (data == nullptr && g_released.give_up()) data = reserve(bytes);
  if (data == nullptr) {
    fail(ErrorCode::Device, "cannot allocate ", bytes,
         " bytes: the system has no memory left; free modules or tensors");
  }
  return data;
}

}  // namespace

AlignedBuffer::AlignedBuffer(uint64_t bytes) : bytes_(bytes) {
  const uint64_t whole = rounded(bytes);
  if (whole == 0) return;
  data_ = {reserve_or_fail(whole), ReleaseAligned{whole}};
  if (whole < kMapThreshold) std::memset(data_.get(), 0, whole);
}

AlignedBuffer AlignedBuffer::unfilled(uint64_t bytes) {
  AlignedBuffer buffer;
  buffer.bytes_ = bytes;
  const uint64_t whole = rounded(bytes);
  if (whole == 0) return buffer;
  std::byte* data = g_released.take(whole).data;
  buffer.data_ = {data != nullptr ? data : reserve_or_fail(whole), ReleaseAligned{whole}};
  return buffer;
}

void ReleaseAligned::operator()(std::byte* data) const noexcept {
  if (const Block rest = g_released.keep({data, bytes}); rest.data != nullptr) release(rest);
}

}  // namespace tcim_lite
