// A tensor: shared memory, an offset into it, and what it looks like. A cheap value; copies alias.
//
// A tensor without a buffer describes an unbound dummy. Host reads and writes wait for queued runs that use the memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <tuple>

#include "runtime/buffer.h"
#include "runtime/python_call.h"
#include "runtime/strided_copy.h"
#include "runtime/tensor_info.h"

namespace tcim_lite {

struct ArrayMemory;
struct CallEvent;

class Tensor {
 public:
  Tensor() = default;
  Tensor(TensorInfo info, std::shared_ptr<Buffer> buffer, uint64_t offset = 0);

  // Storage on the device that the info names. `holder` and `content` as in Buffer.
  static Tensor allocate(const TensorInfo& info, std::string_view holder = {}, Content content = Content::Unspecified);
  // Host storage with the info's layout, holding the array's converted values.
  static Tensor from_array(const TensorInfo& info, const ArrayView& array);

  const TensorInfo& info() const noexcept { return info_; }
  const std::shared_ptr<Buffer>& buffer() const noexcept { return buffer_; }
  bool has_storage() const noexcept { return buffer_ != nullptr; }
  bool on_device() const noexcept { return info_.device_id != kHost; }
  uint64_t offset() const noexcept { return offset_; }  // bytes into the buffer
  // The first element, of a tensor with storage; null if that is in several pieces.
  std::byte* data() const noexcept {
    std::byte* const begin = buffer_->host_data();
    return begin == nullptr ? nullptr : begin + offset_;
  }

  // A rectangular view that shares storage and keeps the strides. Throws Error(Shape).
  Tensor select_roi(const Shape& start, const Shape& extents) const;

  // Device: always a new host tensor, dense if this is or when asked for. Host: this tensor itself, unless it is
  // strided and a dense one is asked for.
  Tensor to_host(bool to_contiguous) const;
  // As to_host, but in memory that no later run writes (C-11): an array may use it for as long as it keeps the buffer.
  ArrayMemory to_array() const;
  Tensor clone(bool copy) const;
  // A converted copy in the same place.
  Tensor astype(DType dtype) const;
  // Copies this into `target`: equal dtypes, equal element counts, any strides.
  void copy_to(const Tensor& target) const;
  // The same with conversion of dtype.
  void cast_to(const Tensor& target) const;
  void set_zero() const;
  // Where the host finds the first element once no queued run uses the memory; null as data().
  std::byte* wait_for_data() const;

  static constexpr auto python_calls() {
    return std::tuple(python_call("select_roi", &Tensor::select_roi, "start", "shape"),
                      python_call("to_host", &Tensor::to_host, "to_contiguous"),
                      python_call("clone", &Tensor::clone, "copy"), python_call("copy_to", &Tensor::copy_to, "target"),
                      python_call("cast_to", &Tensor::cast_to, "target"), python_call("set_zero", &Tensor::set_zero));
  }

 private:
  void require_storage(const char* what) const;
  // For queued runs. Only a call that no other has made is interruptible: another may hold a lock, and waits before.
  void wait_idle() const;
  Tensor select_images(const Shape& start, const Shape& extents) const;
  void copy_values(const Tensor& target, const char* what) const;
  void describe_read(CallEvent& event) const;
  void describe_copy(CallEvent& event, const Tensor& target) const;
  // Of a call that gives the program a pointer; `before`: whether it had one already.
  void describe_handing_out(CallEvent& event, bool before) const;
  bool handed_out() const noexcept;

  TensorInfo info_;
  std::shared_ptr<Buffer> buffer_;
  uint64_t offset_ = 0;
};

// A host tensor, and its first element, which stays there.
struct ArrayMemory {
  Tensor tensor;
  std::byte* data;
};

// Strides in bytes, for views.
Shape byte_strides(const TensorInfo& info);

}  // namespace tcim_lite
