// A tensor's bytes as the host sees them: its memory where that is in one piece within reach, else a copy of it.
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
  // Brings what was written to where the tensor lives.
  void store();

 private:
  const Tensor& tensor_;
  AlignedBuffer copy_;
  std::byte* data_;
};

}  // namespace tcim_lite
