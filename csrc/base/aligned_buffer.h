// Memory aligned to 64 bytes (a cache line and a zmm register). Move-only owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tcim_lite {

struct ReleaseAligned {
  uint64_t bytes = 0;  // as reserved
  void operator()(std::byte* data) const noexcept;
};

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Zeroed. Throws Error(Device) with the size when the system has no memory. Large buffers come as fresh zero pages,
  // so memory nobody touched costs nothing.
  explicit AlignedBuffer(uint64_t bytes);
  // For who overwrites all of it: memory of a buffer released lately where one has the size, since the first touch of
  // a fresh page takes longer than the copy into it.
  static AlignedBuffer unfilled(uint64_t bytes);

  std::byte* data() const noexcept { return data_.get(); }
  uint64_t bytes() const noexcept { return bytes_; }

 private:
  std::unique_ptr<std::byte, ReleaseAligned> data_;
  uint64_t bytes_ = 0;
};

}  // namespace tcim_lite
