#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace tcim_lite {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kMapThreshold = 1 << 20;

}  // namespace

AlignedBuffer::AlignedBuffer(uint64_t bytes) : bytes_(bytes) {
  const uint64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (rounded < bytes) fail(ErrorCode::Device, "cannot allocate ", bytes, " bytes: the size is not representable");
  void* memory = nullptr;
  uint64_t mapped_bytes = 0;
  if (rounded >= kMapThreshold) {
    memory = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) memory = nullptr;
    mapped_bytes = rounded;
  } else if (rounded > 0) {
    memory = std::aligned_alloc(kAlignment, rounded);
    if (memory != nullptr) std::memset(memory, 0, rounded);
  }
  if (memory == nullptr && rounded > 0) {
    fail(ErrorCode::Device, "cannot allocate ", bytes,
         " bytes: the system has no memory left; free modules or tensors");
  }
  data_ = {static_cast<std::byte*>(memory), ReleaseAligned{mapped_bytes}};
}

void ReleaseAligned::operator()(std::byte* data) const noexcept {
  if (mapped_bytes > 0) {
    munmap(data, mapped_bytes);
  } else {
    std::free(data);
  }
}

}  // namespace tcim_lite
