#include "runtime/host_bytes.h"

namespace tcim_lite {

HostBytes::HostBytes(const Tensor& tensor, HostAccess access) : tensor_(tensor) {
  const Buffer& buffer = *tensor.buffer();
  data_ = buffer.host_data();
  if (data_ != nullptr) {
    data_ += tensor.offset();
    return;
  }
  copy_ = AlignedBuffer::unfilled(tensor.info().span_bytes());
  data_ = copy_.data();
  if (access != HostAccess::Write) buffer.read(tensor.offset(), copy_.bytes(), data_);
}

void HostBytes::store() {
  if (copy_.data() != nullptr) tensor_.buffer()->write(tensor_.offset(), copy_.bytes(), copy_.data());
}

}  // namespace tcim_lite
