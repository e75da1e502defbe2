#include "runtime/yuv.h"

#include <utility>

#include "base/error.h"
#include "runtime/api_call.h"

namespace tcim_lite {
namespace {

struct Sampling {
  int64_t rows, columns;  // luma rows and columns per chroma sample
};

Sampling sampling(Format format) {
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

// Rows of `width` bytes that the chroma of `height` luma rows fills.
int64_t chroma_rows(int64_t height, const Sampling& step) { return height / step.rows * 2 / step.columns; }

}  // namespace

TensorInfo yuv_info(int64_t batch, int64_t width, int64_t height, Format format) {
  const Sampling step = sampling(format);
  if (batch < 1 || width < 1 || height < 1 || width % step.columns != 0 || height % step.rows != 0) {
    fail(ErrorCode::Argument, name_of(format), ": ", batch, " image(s) of ", width, " x ", height,
         ": expected at least 1 and sizes that are multiples of ", step.columns, " x ", step.rows);
  }
  TensorInfo info = TensorInfo::dense(DType::UInt8, {batch, height + chroma_rows(height, step), width});
  info.format = format;
  return info;
}

YuvPlanes split_yuv(const Tensor& image) {
  return api_call(
      "Tensor.split_yuv", [&](CallEvent& event) { event.self = TensorFacts(image); },
      [&]() -> YuvPlanes {
        const TensorInfo& info = image.info();
        const Sampling step = sampling(info.format);
        // chroma_rows(height) is height * 2 / (step.rows * step.columns).
        const int64_t parts = step.rows * step.columns;
        const int64_t height = info.shape.size() == 3 ? info.shape[1] * parts / (parts + 2) : 0;
        if (height < 1 || height + chroma_rows(height, step) != info.shape[1] || size_of(info.dtype) != 1 ||
            !info.is_dense() || !image.has_storage()) {
          fail(ErrorCode::Argument, "SplitYUV: a tensor of ", to_string(info), " is no dense ", name_of(info.format),
               " image with memory");
        }
        const int64_t batch = info.shape[0], width = info.shape[2], image_bytes = info.shape[1] * width;
        const auto plane = [&](Shape shape, Shape strides, int64_t offset) {
          TensorInfo view = info;
          view.format = Format::ND;
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
