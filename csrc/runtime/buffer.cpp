#include "runtime/buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/devices.h"
#include "runtime/observer.h"
#include "runtime/stream.h"

namespace tcim_lite {
namespace {

class WrappedMemory final : public DeviceMemory {
 public:
  WrappedMemory(void* data, uint64_t bytes) {
    data_ = static_cast<std::byte*>(data);
    bytes_ = bytes;
  }
};

// States are used on the device only; most other tensors are read and written by the host.
Placing placing_of(Content content) {
  if (content == Content::Zero) return Placing::NearDevice;
  return content == Content::HandedOn ? Placing::NearBoth : Placing::NearHost;
}

}  // namespace

Buffer::Buffer() noexcept : handle_(next_handle()) {}

std::shared_ptr<Buffer> Buffer::of_host(AlignedBuffer memory) {
  std::shared_ptr<Buffer> buffer(new Buffer);
  buffer->host_ = std::move(memory);
  buffer->host_data_ = buffer->host_.data();
  buffer->bytes_ = buffer->host_.bytes();
  return buffer;
}

std::shared_ptr<Buffer> Buffer::on_host(uint64_t bytes) { return of_host(AlignedBuffer(bytes)); }
std::shared_ptr<Buffer> Buffer::unfilled_on_host(uint64_t bytes) { return of_host(AlignedBuffer::unfilled(bytes)); }

std::shared_ptr<Buffer> Buffer::on_device(int device_id, uint64_t bytes, std::string_view holder, Content content) {
  return on_devices({{device_id}, 1, {}}, bytes, holder, content);
}

std::shared_ptr<Buffer> Buffer::wrap(void* data, uint64_t bytes, Device* device) {
  std::shared_ptr<Buffer> buffer(new Buffer);
  buffer->host_data_ = static_cast<std::byte*>(data);
  buffer->bytes_ = bytes;
  if (device == nullptr) {
    buffer->hand_out();
    return buffer;
  }
  buffer->host_data_ = device->backend().host_view(buffer->host_data_);
  buffer->layout_.device_ids = {device->id()};
  buffer->slabs_.push_back({device, std::make_shared<WrappedMemory>(data, bytes), Charge()});
  return buffer;
}

std::shared_ptr<Buffer> Buffer::on_devices(SlabLayout layout, uint64_t bytes, std::string_view holder,
                                           Content content) {
  std::shared_ptr<Buffer> buffer(new Buffer);
  buffer->bytes_ = bytes;
  buffer->layout_ = std::move(layout);
  for (size_t rank = 0; rank < buffer->layout_.device_ids.size(); ++rank) {
    buffer->add_slab(use_device(buffer->layout_.device_ids[rank]), buffer->layout_.slab_bytes(rank, bytes), holder,
                     content);
  }
  if (buffer->slabs_.size() == 1) buffer->host_data_ = buffer->slabs_[0].device->backend().host_view(buffer->slab(0));
  observe_memory(buffer, content);
  return buffer;
}

void Buffer::add_slab(Device& device, uint64_t bytes, std::string_view holder, Content content) {
  Charge charge(device, bytes, MemoryUse::Tensors, holder);
  slabs_.push_back({&device, device.backend().allocate(device.id(), bytes, placing_of(content)), std::move(charge)});
}

// visit(rank, offset in the slab, offset in the range, bytes) for the pieces of the logical bytes
// [offset, offset + bytes), in order. A tensor that is whole on every device is one piece, of rank 0.
template <typename Visit>
void Buffer::for_pieces(uint64_t offset, uint64_t bytes, const Visit& visit) const {
  if (layout_.runs.empty()) return visit(size_t{0}, offset, uint64_t{0}, bytes);
  const uint64_t row_bytes = layout_.row_bytes();
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t row = (offset + done) / row_bytes;
    uint64_t column = (offset + done) % row_bytes;
    size_t rank = 0;
    for (; column >= layout_.runs[rank]; ++rank) column -= layout_.runs[rank];
    const uint64_t count = std::min(bytes - done, layout_.runs[rank] - column);
    visit(rank, row * layout_.runs[rank] + column, done, count);
    done += count;
  }
}

void Buffer::read(uint64_t offset, uint64_t bytes, std::byte* host) const {
  for_pieces(offset, bytes, [&](size_t rank, uint64_t from, uint64_t to, uint64_t count) {
    slabs_[rank].device->backend().copy_to_host(host + to, slab(rank) + from, count);
  });
}

void Buffer::write(uint64_t offset, uint64_t bytes, const std::byte* host) {
  for_pieces(offset, bytes, [&](size_t rank, uint64_t to, uint64_t from, uint64_t count) {
    const size_t last = layout_.runs.empty() ? slabs_.size() - 1 : rank;
    for (size_t each = rank; each <= last; ++each) {
      slabs_[each].device->backend().copy_from_host(slab(each) + to, host + from, count);
    }
  });
}

std::byte* Buffer::lend_to_array() noexcept {
  const std::lock_guard lock(arrays_mutex_);
  if (written_by_runs_) return nullptr;
  lent_to_arrays_ = true;
  hand_out();
  return host_data();
}

void Buffer::mark_written_by_runs() {
  const std::lock_guard lock(arrays_mutex_);
  if (lent_to_arrays_ && !written_by_runs_) {
    AlignedBuffer copy = AlignedBuffer::unfilled(bytes_);
    std::memcpy(copy.data(), host_data(), bytes_);
    kept_for_arrays_ = std::move(host_);
    host_ = std::move(copy);
    host_data_ = host_.data();
  }
  written_by_runs_ = true;
}

void Buffer::add_uses(std::shared_ptr<const Uses> uses) {
  const std::lock_guard lock(uses_mutex_);
  std::erase_if(uses_, [](const auto& each) { return each->over(); });
  uses_.push_back(std::move(uses));
}

// The latest first: the others are probably done when it is.
std::shared_ptr<const Uses> Buffer::find_busy() const noexcept {
  const std::lock_guard lock(uses_mutex_);
  for (auto each = uses_.rbegin(); each != uses_.rend(); ++each) {
    if (!(*each)->idle()) return *each;
  }
  return nullptr;
}

void Buffer::wait_idle() const noexcept {
  while (const std::shared_ptr<const Uses> busy = find_busy()) busy->wait_idle();
}

void Buffer::wait_for_runs() const {
  std::vector<std::pair<std::shared_ptr<const Uses>, uint64_t>> queued;
  {
    const std::lock_guard lock(uses_mutex_);
    for (const auto& uses : uses_) {
      if (!uses->idle()) queued.emplace_back(uses, uses->begun());
    }
  }
  for (const auto& [uses, begun] : queued) {
    while (!uses->wait_ended(begun, kInterruptInterval)) {
      if (interrupted()) throw Interrupted();
    }
  }
}

}  // namespace tcim_lite
