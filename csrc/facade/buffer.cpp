#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "facade/access.h"
#include "facade/report.h"
#include "runtime/api_call.h"

namespace tcim {

using namespace internal;

namespace {

using tcim_lite::ErrorCode;
using tcim_lite::fail;

// The bytes [offset, offset + size) of a buffer as a tensor, through which the runtime copies. size > 0.
tcim_lite::Tensor bytes_of(const std::shared_ptr<tcim_lite::Buffer>& memory, uint64_t offset, uint64_t size) {
  auto info = tcim_lite::TensorInfo::dense(tcim_lite::DType::UInt8, {int64_t(size)}, memory->device_id());
  return tcim_lite::Tensor(std::move(info), memory, offset);
}

tcim_lite::Tensor bytes_of(const void* host, uint64_t size) {
  return bytes_of(tcim_lite::Buffer::wrap(const_cast<void*>(host), size), 0, size);
}

tcim_lite::Tensor part_of(const BufferState& buffer, uint64_t size, uint64_t offset) {
  if (offset > buffer.bytes || size > buffer.bytes - offset) {
    fail(ErrorCode::Argument, size, " bytes at ", offset, " lie outside a buffer of ", buffer.bytes, " bytes");
  }
  return bytes_of(buffer.memory, buffer.offset + offset, size);
}

void require_pointer(const void* pointer, const char* name) {
  if (pointer == nullptr) fail(ErrorCode::Argument, name, " is null");
}

void require_size(size_t size) {
  if (size == 0 || size > uint64_t(1) << 48) fail(ErrorCode::Argument, "a buffer cannot have ", size, " bytes");
}

// Calls `make`, which returns the memory on the device, if one is given.
template <typename Make>
Buffer make_buffer(const char* what, size_t size, std::optional<int> device_id, Make&& make) {
  Buffer made;
  const Status status = guarded(what, [&] {
    require_size(size);
    const auto describe = [&](tcim_lite::CallEvent& event) { event.device_id = device_id; };
    made = Access::buffer(tcim_lite::api_call(tcim_lite::device_call<"Buffer.create">, describe, make), 0, size);
  });
  return status == OK ? made : Access::failed_buffer(status);
}

// Copies the first `bytes` of `from` to the beginning of `to`. The two may overlap.
void copy_first(const BufferState& from, const BufferState& to, size_t bytes) {
  if (bytes > to.bytes) {
    fail(ErrorCode::Argument, "CopyTo: ", bytes, " bytes do not fit a buffer of ", to.bytes, " bytes");
  }
  auto source = bytes_of(from.memory, from.offset, bytes);
  const auto *begin = source.data(), *other = bytes_of(to.memory, to.offset, bytes).data();
  if (begin == other && begin != nullptr) return;
  const bool overlap = begin < other ? begin + bytes > other : other + bytes > begin;
  if (begin != nullptr && other != nullptr && overlap) source = source.clone(true);
  source.copy_to(bytes_of(to.memory, to.offset, bytes));
}

}  // namespace

Buffer internal::Access::buffer(std::shared_ptr<tcim_lite::Buffer> memory, uint64_t offset, uint64_t bytes) {
  Buffer buffer;
  buffer.impl_ = std::make_shared<BufferState>(BufferState{OK, std::move(memory), offset, bytes});
  return buffer;
}

Buffer internal::Access::failed_buffer(Status status) {
  Buffer buffer;
  buffer.impl_ = std::make_shared<BufferState>(BufferState{status, nullptr, 0, 0});
  return buffer;
}

const BufferState& internal::Access::core(const Buffer& buffer) {
  if (buffer.impl_ == nullptr || buffer.impl_->memory == nullptr) {
    fail(ErrorCode::State, "Status.UNINITIALIZED: the buffer has no memory");
  }
  return *buffer.impl_;
}

Buffer Buffer::CreateHostBuffer(size_t size, void* ptr) {
  return make_buffer("Buffer::CreateHostBuffer", size, std::nullopt, [&] {
    return ptr == nullptr ? tcim_lite::Buffer::on_host(size) : tcim_lite::Buffer::wrap(ptr, size);
  });
}

Buffer Buffer::CreateDeviceBuffer(size_t size, int device_id, std::string backend, std::string type) {
  return make_buffer("Buffer::CreateDeviceBuffer", size, device_id, [&] {
    tcim_lite::resolve_backend(backend);
    if (!type.empty() && type != "reserved") {
      fail(ErrorCode::Argument, "memory type '", type, "': expected \"\" or \"reserved\"");
    }
    return tcim_lite::Buffer::on_device(device_id, size);
  });
}

Buffer Buffer::CreateDeviceBuffer(void* dev_ptr, size_t size, int device_id, std::string backend) {
  return make_buffer("Buffer::CreateDeviceBuffer", size, device_id, [&] {
    tcim_lite::resolve_backend(backend);
    require_pointer(dev_ptr, "dev_ptr");
    return tcim_lite::Buffer::wrap(dev_ptr, size, &tcim_lite::use_device(device_id));
  });
}

Buffer Buffer::Clone(bool auto_copy) const {
  Buffer made;
  const tcim::Status status = guarded("Buffer::Clone", [&] {
    const BufferState& source = Access::core(*this);
    // A piece of a tensor that is cut over devices has no cut of its own: its clone is whole on each.
    made = Access::buffer(source.memory->on_host()
                              ? tcim_lite::Buffer::on_host(source.bytes)
                              : tcim_lite::Buffer::on_devices({source.memory->layout().device_ids}, source.bytes),
                          0, source.bytes);
    if (auto_copy) {
      bytes_of(source.memory, source.offset, source.bytes).copy_to(bytes_of(made.impl_->memory, 0, source.bytes));
    }
  });
  return status == OK ? made : Access::failed_buffer(status);
}

tcim::Status Buffer::CopyFromHost(const void* src, size_t size, size_t offset) {
  return guarded("Buffer::CopyFromHost", [&] {
    const BufferState& buffer = Access::core(*this);
    if (size == 0) return;
    require_pointer(src, "src");
    const auto target = part_of(buffer, size, offset);
    bytes_of(src, size).copy_to(target);
  });
}

tcim::Status Buffer::CopyToHost(void* dst, size_t size, size_t offset) const {
  return guarded("Buffer::CopyToHost", [&] {
    const BufferState& buffer = Access::core(*this);
    if (size == 0) return;
    require_pointer(dst, "dst");
    part_of(buffer, size, offset).copy_to(bytes_of(dst, size));
  });
}

tcim::Status Buffer::MemSet(int value, size_t size, size_t offset) {
  return guarded("Buffer::MemSet", [&] {
    const BufferState& buffer = Access::core(*this);
    if (size == 0) return;
    const auto target = part_of(buffer, size, offset);
    if (uint8_t(value) == 0) return target.set_zero();
    const auto byte = uint8_t(value);
    auto pattern = tcim_lite::TensorInfo::dense(tcim_lite::DType::UInt8, {int64_t(size)});
    pattern.strides = {0};
    tcim_lite::Tensor(pattern, tcim_lite::Buffer::wrap(const_cast<uint8_t*>(&byte), 1)).copy_to(target);
  });
}

tcim::Status Buffer::CopyTo(const Buffer& dst) const {
  return guarded("Buffer::CopyTo", [&] {
    const BufferState& from = Access::core(*this);
    copy_first(from, Access::core(dst), from.bytes);
  });
}

tcim::Status Buffer::CopyTo(const Buffer& dst, size_t size) const {
  return guarded("Buffer::CopyTo", [&] {
    const BufferState &from = Access::core(*this), &to = Access::core(dst);
    if (size == 0) return;
    if (size > from.bytes) fail(ErrorCode::Argument, "CopyTo: ", size, " bytes of a buffer of ", from.bytes, " bytes");
    copy_first(from, to, size);
  });
}

Buffer Buffer::GetSubBuffer(size_t size, size_t offset) const {
  Buffer made;
  const tcim::Status status = guarded("Buffer::GetSubBuffer", [&] {
    const BufferState& parent = Access::core(*this);
    require_size(size);
    part_of(parent, size, offset);
    made = Access::buffer(parent.memory, parent.offset + offset, size);
  });
  return status == OK ? made : Access::failed_buffer(status);
}

void* Buffer::Data() const {
  if (impl_ == nullptr || impl_->memory == nullptr || impl_->memory->host_data() == nullptr) return nullptr;
  if (impl_->memory->on_host()) impl_->memory->hand_out();
  return impl_->memory->host_data() + impl_->offset;
}

size_t Buffer::Size() const { return impl_ == nullptr ? 0 : size_t(impl_->bytes); }

tcim::Device Buffer::Device() const {
  return impl_ == nullptr || impl_->memory == nullptr || impl_->memory->on_host() ? CPU : HDPL;
}

tcim::Status Buffer::GetInitStatus() const { return impl_ == nullptr ? UNINITIALIZED : impl_->status; }

}  // namespace tcim
