// Buffers that are used again and again, so that a program allocates while it warms up and then no more.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tcim/tcim_runtime.h"

// Thread-safe. A buffer is lent to one user at a time and comes back when the last copy of its Lease is gone; leases
// may outlive the pool.
class BufferPool {
 public:
  enum Place { kHost, kDevice, kReserved };  // kReserved: device memory of the vendor's type "reserved"

  struct State;

  // A lent buffer. Its bytes are those of the user before.
  class Lease {
   public:
    const tcim::Buffer& Buffer() const { return lent_->buffer; }
    // On the beginning of the buffer; must not outlive the lease.
    tcim::Tensor Tensor(const tcim::TensorInfo& info) const { return tcim::Tensor(info, lent_->buffer); }

   private:
    friend class BufferPool;
    struct Lent {
      ~Lent();
      std::shared_ptr<State> pool;
      tcim::Buffer buffer;
      size_t size = 0;
    };
    std::shared_ptr<Lent> lent_;
  };

  // Of one place; `device_id` matters for device memory. `limit`: bytes of all its buffers, lent or not.
  BufferPool(Place place, size_t limit, int device_id = 0);

  // At least `size` bytes: a power of two from 4096 on. Where the limit or the device's memory is reached, buffers that
  // nobody uses are given up first. Throws std::runtime_error if that is not enough.
  Lease Get(size_t size);

  // Bytes of all buffers, and how many were ever made.
  size_t Bytes() const;
  int Made() const;

 private:
  std::shared_ptr<State> state_;
};
