#include "runtime/buffer.h"

#include "runtime/devices.h"
#include "runtime/spin.h"

namespace tcim_lite {

std::shared_ptr<Buffer> Buffer::on_host(uint64_t bytes) {
  std::shared_ptr<Buffer> buffer(new Buffer);
  buffer->host_ = AlignedBuffer(bytes);
  buffer->data_ = buffer->host_.data();
  buffer->bytes_ = bytes;
  return buffer;
}

std::shared_ptr<Buffer> Buffer::on_device(Device& device, uint64_t bytes) {
  std::shared_ptr<Buffer> buffer(new Buffer);
  device.charge(bytes, MemoryUse::Tensors);
  buffer->device_ = &device;
  buffer->bytes_ = bytes;
  buffer->memory_ = device.backend().allocate(bytes);
  buffer->data_ = buffer->memory_->data();
  return buffer;
}

Buffer::~Buffer() {
  if (device_ != nullptr) device_->discharge(bytes_, MemoryUse::Tensors);
}

int Buffer::device_id() const noexcept { return device_ == nullptr ? kHost : device_->id(); }

void Buffer::end_use() noexcept {
  if (uses_.fetch_sub(1, std::memory_order_acq_rel) == 1) uses_.notify_all();
}

void Buffer::wait_idle() const noexcept {
  const auto idle = [this] { return uses_.load(std::memory_order_acquire) == 0; };
  if (spin_until(idle)) return;
  for (int32_t uses; (uses = uses_.load(std::memory_order_acquire)) != 0;) uses_.wait(uses, std::memory_order_acquire);
}

}  // namespace tcim_lite
