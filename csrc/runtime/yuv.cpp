#include "runtime/yuv.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "runtime/api_call.h"

namespace tcim_lite {

YuvSampling yuv_sampling(Format format) {
  switch (format) {
    case Format::YUV420SP:
      return {2, 2};
    case Format::YUV422SP:
      return {1, 2};
    case Format::YUV444SP:
      return {1, 1};
    case Format::ND:
      break;
  }
  fail(ErrorCode::Argument, "format ND is no image format; expected YUV420SP, YUV422SP or YUV444SP");
}

namespace {

int64_t chroma_bytes(int64_t width, int64_t height, const YuvSampling& step) {
  return height / step.rows * (width / step.columns) * 2;
}

}  // namespace

TensorInfo yuv_info(int64_t batch, int64_t width, int64_t height, Format format) {
  const YuvSampling step = yuv_sampling(format);
  if (batch < 1 || width < 1 || height < 1 || width % step.columns != 0 || height % step.rows != 0) {
    fail(ErrorCode::Argument, name_of(format), ": ", batch, " image(s) of ", width, " x ", height,
         ": expected at least 1 and sizes that are multiples of ", step.columns, " x ", step.rows);
  }
  TensorInfo::dense(DType::UInt8, {batch, 3, height, width});  // throws before a product of the sizes can overflow
  const int64_t bytes = height * width + chroma_bytes(width, height, step);
  return as_image(TensorInfo::dense(DType::UInt8, {batch, bytes}), width, height, format);
}

TensorInfo as_image(TensorInfo info, int64_t width, int64_t height, Format format) {
  const int64_t batch = info.shape[0];
  if (format == Format::ND) {
    info.shape = {batch, 1, height, width};
    info.strides = dense_strides(info.shape);
  } else {
    info.image = {batch, 3, height, width};
  }
  info.format = format;
  return info;
}

Shape TensorInfo::api_strides() const {
  if (image.empty()) return strides;
  const YuvSampling step = yuv_sampling(format);
  const int64_t columns = image[3] / step.columns;
  return {strides[0], image[3], 1, strides[0], columns * 2, 2, 1, image[2] * image[3]};
}

std::optional<std::vector<std::byte>> images_without_padding(const TensorInfo& info, const ArrayView& array,
                                                             std::string_view what) {
  if (info.image.empty() || array.elements() == info.elements() || !std::ranges::equal(array.shape, info.image)) {
    return std::nullopt;
  }
  const ptrdiff_t batch = info.shape[0], image_bytes = info.shape[1], padded_bytes = array.elements() / batch;
  std::vector<std::byte> bytes(size_t(array.elements()));
  copy_to_dense(array, DType::UInt8, bytes.data(), what);
  for (ptrdiff_t index = 0; index < batch; ++index) {
    const auto image = bytes.begin() + index * padded_bytes, padding = image + image_bytes;
    if (std::any_of(padding, image + padded_bytes, [](std::byte value) { return value != std::byte{0}; })) {
      fail(ErrorCode::Shape, what, ": three whole planes ", to_string(info.image), image_note(info),
           ". Give these, or an array of this shape with zeros behind them; convert colours with cv2.cvtColor first");
    }
    std::copy(image, padding, bytes.begin() + index * image_bytes);
  }
  bytes.resize(size_t(info.elements()));
  return bytes;
}

YuvPlanes split_yuv(const Tensor& image) {
  return api_call(
      host_call<"Tensor.split_yuv">, [&](CallEvent& event) { event.self = TensorFacts(image); },
      [&]() -> YuvPlanes {
        const TensorInfo& info = image.info();
        const YuvSampling step = yuv_sampling(info.format);
        if (size_of(info.dtype) != 1 || !info.is_dense() || !image.has_storage()) {
          fail(ErrorCode::Argument, "SplitYUV: a tensor of ", to_string(info), " is no dense ", name_of(info.format),
               " image with memory");
        }
        const int64_t batch = info.shape[0], image_bytes = info.shape[1];
        const int64_t height = info.image[2], width = info.image[3];
        const auto plane = [&](Shape shape, Shape strides, int64_t offset) {
          TensorInfo view = info;
          view.format = Format::ND;
          view.image.clear();
          view.shape = std::move(shape);
          view.strides = std::move(strides);
          return Tensor(std::move(view), image.buffer(), image.offset() + uint64_t(offset));
        };
        const int64_t columns = width / step.columns;
        return {plane({batch, height, width}, {image_bytes, width, 1}, 0),
                plane({batch, height / step.rows, columns, 2}, {image_bytes, columns * 2, 2, 1}, height * width)};
      });
}

}  // namespace tcim_lite
