#include "runtime/tensor_info.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace tcim_lite {

namespace {

constexpr std::string_view kFormatNames[] = {"ND", "YUV420SP", "YUV422SP", "YUV444SP"};

}  // namespace

std::string_view name_of(Format format) { return kFormatNames[size_t(format)]; }

Format format_of(std::string_view name) {
  const auto* const found = std::find(std::begin(kFormatNames), std::end(kFormatNames), name);
  return found == std::end(kFormatNames) ? Format::ND : Format(found - std::begin(kFormatNames));
}

Shape dense_strides(const Shape& shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) strides[axis] = stride;
  return strides;
}

TensorInfo TensorInfo::dense(DType dtype, Shape shape, int device_id, std::string name) {
  constexpr int64_t kMost = int64_t(1) << 48;
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 1 || extent > kMost / count) {
      fail(ErrorCode::Shape, "shape ", to_string(shape), ": every extent must be at least 1 and the product at most ",
           kMost);
    }
    count *= extent;
  }
  TensorInfo info;
  info.dtype = dtype;
  info.strides = dense_strides(shape);
  info.shape = std::move(shape);
  info.device_id = device_id;
  info.name = std::move(name);
  return info;
}

uint64_t TensorInfo::span_bytes() const {
  uint64_t last = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) last += uint64_t(shape[axis] - 1) * uint64_t(strides[axis]);
  return (last + 1) * uint64_t(size_of(dtype));
}

bool TensorInfo::is_dense() const {
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] != 1 && strides[axis] != stride) return false;
    stride *= shape[axis];
  }
  return true;
}

TensorInfo TensorInfo::ascontiguous() const {
  TensorInfo copy = *this;
  copy.strides = dense_strides(shape);
  return copy;
}

TensorInfo TensorInfo::astype(DType other) const {
  if (!is_device_dtype(uint8_t(other))) {
    fail(ErrorCode::Argument, "a tensor cannot be ", name_of(other),
         "; expected int8, uint8, int16, uint16, int32, uint32, float16 or float32");
  }
  TensorInfo copy = *this;
  copy.dtype = other;
  return copy;
}

TensorInfo TensorInfo::on_host() const {
  TensorInfo copy = *this;
  copy.device_id = kHost;
  copy.placement = nullptr;
  return copy;
}

TensorInfo TensorInfo::part(const Shape& extents) const {
  TensorInfo copy = *this;
  copy.shape = extents;
  if (!image.empty()) copy.image[0] = extents[0];
  if (placement != nullptr && placement->axis != kWhole &&
      extents[size_t(placement->axis)] != shape[size_t(placement->axis)]) {
    // The devices of a piece of the cut axis depend on where the piece starts. A new tensor of the same size has no
    // such start, so it is whole on all devices.
    copy.placement = std::make_shared<const Placement>(Placement{placement->device_ids, kWhole, {}});
  }
  return copy;
}

std::string to_string(const TensorInfo& info) {
  return concat(name_of(info.dtype), " ", info.image.empty() ? "" : concat(name_of(info.format), " "),
                to_string(info.api_shape()));
}

std::string image_note(const TensorInfo& info) {
  if (info.image.empty()) return {};
  return concat("; an image has ", info.shape[1], " bytes, all rows of Y, then U and V by turns");
}

}  // namespace tcim_lite
