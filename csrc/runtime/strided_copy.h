// Copies between arrays of any strides and dtypes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/dtype.h"

namespace tcim_lite {

// Somebody's array, of host-addressable memory. Strides are in bytes and may be negative or zero.
struct ArrayView {
  const std::byte* data;
  DType dtype;
  std::span<const int64_t> shape;
  std::span<const int64_t> strides;

  int64_t elements() const noexcept;
  bool is_dense() const noexcept;
};

struct MutableArrayView {
  std::byte* data;
  DType dtype;  // a device dtype
  std::span<const int64_t> shape;
  std::span<const int64_t> strides;
};

// Copies in row-major order; only the element counts must agree, which the caller has checked. `what` begins the
// message when a value does not fit the target (Error(Argument)); nothing has been written then.
void copy_array(const ArrayView& source, const MutableArrayView& target, std::string_view what);

// The same into `target`, which holds source.elements() elements without gaps.
void copy_to_dense(const ArrayView& source, DType dtype, std::byte* target, std::string_view what);

}  // namespace tcim_lite
