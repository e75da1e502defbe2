// A tensor's bytes for the host: the memory itself if it is in one piece that the host can access, else a copy.
#pragma once

#include <cstddef>

#include "base/aligned_buffer.h"
#include "runtime/tensor.h"

namespace tcim_lite {

enum class HostAccess {
  Read,
  Write,   // every byte of the tensor's span is written before store()
  Update,  // some are, as in a strided view
};

class HostBytes {
 public:
  // The tensor has storage, which no queued run uses, and outlives this.
  HostBytes(const Tensor& tensor, HostAccess access);

  // The first element; strides are those of the tensor's info.
  std::byte* data() const noexcept { return data_; }
  // Copies what was written back to the tensor's memory, if needed.
  void store();

 private:
  const Tensor& tensor_;
  AlignedBuffer copy_;
  std::byte* data_;
};

}  // namespace tcim_lite
