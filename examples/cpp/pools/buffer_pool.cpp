#include "buffer_pool.h"

#include <stdexcept>
#include <string>
#include <utility>

struct BufferPool::State {
  const Place place;
  const size_t limit;
  const int device_id;
  std::mutex mutex;  // guards what follows
  std::map<size_t, std::vector<tcim::Buffer>> free;
  size_t bytes = 0;
  int made = 0;

  tcim::Buffer Make(size_t size) const {
    if (place == kHost) return tcim::Buffer::CreateHostBuffer(size);
    return tcim::Buffer::CreateDeviceBuffer(size, device_id, "", place == kReserved ? "reserved" : "");
  }

  // Gives up every buffer that nobody uses.
  void Trim() {
    for (const auto& [size, buffers] : free) bytes -= size * buffers.size();
    free.clear();
  }
};

BufferPool::Lease::Lent::~Lent() {
  if (!pool) return;
  std::lock_guard<std::mutex> lock(pool->mutex);
  pool->free[size].push_back(std::move(buffer));
}

BufferPool::BufferPool(Place place, size_t limit, int device_id)
    : state_(new State{place, limit, device_id, {}, {}, 0, 0}) {}

BufferPool::Lease BufferPool::Get(size_t size) {
  size_t rounded = 4096;
  while (rounded < size && rounded <= state_->limit) rounded *= 2;
  auto lent = std::make_shared<Lease::Lent>();
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    if (auto& same = state_->free[rounded]; !same.empty()) {
      lent->buffer = std::move(same.back());
      same.pop_back();
    } else {
      const auto full = [&] { return rounded > state_->limit || state_->bytes > state_->limit - rounded; };
      if (full()) state_->Trim();
      if (full()) {
        throw std::runtime_error("the pool holds " + std::to_string(state_->bytes) + " of " +
                                 std::to_string(state_->limit) + " bytes, all lent; " + std::to_string(rounded) +
                                 " more do not fit");
      }
      lent->buffer = state_->Make(rounded);
      if (lent->buffer.GetInitStatus() != tcim::OK) {  // the device is full: perhaps of buffers that lie idle here
        state_->Trim();
        lent->buffer = state_->Make(rounded);
      }
      if (lent->buffer.GetInitStatus() != tcim::OK) throw std::runtime_error(tcim::GetLastError());
      state_->bytes += rounded;
      ++state_->made;
    }
  }
  lent->size = rounded;
  lent->pool = state_;  // last: from here on the buffer goes back
  Lease lease;
  lease.lent_ = std::move(lent);
  return lease;
}

size_t BufferPool::Bytes() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->bytes;
}

int BufferPool::Made() const {
  std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->made;
}
