// Zeroed memory aligned to 64 bytes (a cache line and a zmm register). Move-only owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tcim_lite {

struct ReleaseAligned {
  uint64_t mapped_bytes = 0;  // 0: from the heap
  void operator()(std::byte* data) const noexcept;
};

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Throws Error(Device) with the size when the system has no memory. Large buffers come as fresh zero pages, so
  // memory nobody touched costs nothing.
  explicit AlignedBuffer(uint64_t bytes);

  std::byte* data() const noexcept { return data_.get(); }
  uint64_t bytes() const noexcept { return bytes_; }

 private:
  std::unique_ptr<std::byte, ReleaseAligned> data_;
  uint64_t bytes_ = 0;
};

}  // namespace tcim_lite
