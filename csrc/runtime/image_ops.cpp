#include "runtime/image_ops.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "graph/plan/resizer_pixel.h"
#include "runtime/api_call.h"
#include "runtime/yuv.h"

namespace tcim_lite {
namespace {

constexpr int64_t kMaxSide = 1 << 14;
constexpr int64_t kRowsTogether = 8;

uint8_t to_byte(float value) { return uint8_t(value + 0.5f); }

// Which elements of an axis of a plane become which of the result's.
struct Span {
  int32_t first, size, begin, out;

  int32_t end() const { return begin + out; }
};

// Of the samples that any of these pixels has, `step` pixels to a sample.
Span samples(int64_t first, int64_t size, int64_t begin, int64_t out, int64_t step) {
  const auto count = [&](int64_t from, int64_t pixels) {
    return int32_t((from + pixels - 1) / step - from / step + 1);
  };
  return {int32_t(first / step), count(first, size), int32_t(begin / step), count(begin, out)};
}

// Where each element of the result lies in the plane.
std::vector<float> places(const Span& span, const ImageResize& how) {
  std::vector<float> found(size_t(span.out), float(span.first));
  const int64_t size = span.size, out = span.out;
  for (int32_t i = 0; i < span.out; ++i) {
    float& place = found[size_t(i)];
    if (how.corners) {
      if (out == 1) continue;
      const double exact = double(i * (size - 1)) / double(out - 1);
      place += how.nearest ? float(int64_t(exact + 0.5)) : float(exact);
    } else if (how.nearest) {
      place += float((2 * i + 1) * size / (2 * out));
    } else {
      place = resizer_place(i, span.first, span.size, span.out);
    }
  }
  return found;
}

// `channels` bytes to a sample, side by side.
struct Plane {
  const uint8_t* source;
  uint8_t* target;
  int64_t rows, cols, out_rows, out_cols;
  int channels;
  const int64_t* fill;
};

void resize_plane(const Plane& plane, const Span& down, const Span& across, const ImageResize& how) {
  const std::vector<float> rows = places(down, how), cols = places(across, how);
  const auto resize_row = [&](int64_t row, int) {
    uint8_t* target = plane.target + row * plane.out_cols * plane.channels;
    const bool inside = row >= down.begin && row < down.end();
    for (int64_t col = 0; col < plane.out_cols; ++col) {
      for (int channel = 0; channel < plane.channels; ++channel, ++target) {
        if (!inside || col < across.begin || col >= across.end()) {
          *target = uint8_t(plane.fill[channel]);
          continue;
        }
        *target =
            to_byte(resizer_sample(plane.source + channel, int32_t(plane.rows), int32_t(plane.cols), plane.channels,
                                   rows[size_t(row - down.begin)], cols[size_t(col - across.begin)]));
      }
    }
  };
  ThreadPool::instance().parallel_for(plane.out_rows, resize_row, kRowsTogether);
}

void require_image(const TensorInfo& info, const char* what) {
  if (info.image.empty() || info.dtype != DType::UInt8) {
    fail(ErrorCode::Argument, "the ", what, " is ", to_string(info),
         ", expected an image; describe it with TensorInfo::CreateYUVInfo");
  }
  if (std::max(info.image[2], info.image[3]) > kMaxSide) {
    fail(ErrorCode::Argument, "the ", what, " is ", to_string(info), ", expected at most ", kMaxSide,
         " rows and columns");
  }
}

void check(const TensorInfo& image, const TensorInfo& wanted, const ImageResize& how) {
  require_image(wanted, "output");
  if (wanted.format != image.format || wanted.image[0] != image.image[0]) {
    fail(ErrorCode::Argument, "the output is ", to_string(wanted), ", the input ", to_string(image),
         "; expected the same format and batch");
  }
  const int64_t height = image.image[2], width = image.image[3];
  if (how.x < 0 || how.y < 0 || how.w < 1 || how.h < 1 || how.x + how.w > width || how.y + how.h > height) {
    fail(ErrorCode::Argument, "the crop is ", how.w, " x ", how.h, " at column ", how.x, " and row ", how.y,
         ", expected a part of the image of ", width, " x ", height);
  }
  if (std::min({how.left, how.top, how.right, how.bottom}) < 0 || how.left + how.right >= wanted.image[3] ||
      how.top + how.bottom >= wanted.image[2]) {
    fail(ErrorCode::Argument, "the border is ", how.left, ", ", how.top, ", ", how.right, ", ", how.bottom,
         " (left, top, right, bottom), expected at least 0 and a rest of the output of ", wanted.image[3], " x ",
         wanted.image[2]);
  }
  for (const int64_t value : how.fill) {
    if (value < 0 || value > 255) fail(ErrorCode::Argument, "the border has the value ", value, ", expected 0 to 255");
  }
}

// The numbers of `resizer_pixel`: BT.601 with Y, U and V from 0 to 255, the default of image inputs.
constexpr float kRed = 0.299f, kBlue = 0.114f, kGreen = 1 - kRed - kBlue;
constexpr float kU[3] = {0, -2 * (1 - kBlue) * kBlue / kGreen, 2 * (1 - kBlue)};
constexpr float kV[3] = {2 * (1 - kRed), -2 * (1 - kRed) * kRed / kGreen, 0};
constexpr float kColours[3][kColourNumbers] = {{1, kU[0], kV[0], -128 * (kU[0] + kV[0]), 1, 0},
                                               {1, kU[1], kV[1], -128 * (kU[1] + kV[1]), 1, 0},
                                               {1, kU[2], kV[2], -128 * (kU[2] + kV[2]), 1, 0}};

// A host tensor that holds these bytes.
Tensor tensor_of(const TensorInfo& info, const std::vector<uint8_t>& bytes) {
  return Tensor::from_array(info,
                            {reinterpret_cast<const std::byte*>(bytes.data()), DType::UInt8, info.shape, info.strides});
}

}  // namespace

// The results are made between calls of Tensor, so that recordings and other listeners see a program that computed them
// itself.

Tensor resized_image(const Tensor& image, const TensorInfo& wanted, const ImageResize& how) {
  require_image(image.info(), "input");
  check(image.info(), wanted, how);
  const Tensor host = image.to_host(true);
  const Shape& from = image.info().image;
  const TensorInfo info = yuv_info(wanted.image[0], wanted.image[3], wanted.image[2], wanted.format);
  std::vector<uint8_t> bytes(info.bytes());
  {
    const ApiCall inside;  // a fork waits for its end
    const auto* source = reinterpret_cast<const uint8_t*>(host.data());
    uint8_t* target = bytes.data();
    const auto resize = [&](int64_t rows, int64_t columns, int channels, const int64_t* fill) {
      const Plane plane{
          source,   target, from[2] / rows, from[3] / columns, wanted.image[2] / rows, wanted.image[3] / columns,
          channels, fill};
      const int64_t out_h = wanted.image[2] - how.top - how.bottom, out_w = wanted.image[3] - how.left - how.right;
      resize_plane(plane, samples(how.y, how.h, how.top, out_h, rows), samples(how.x, how.w, how.left, out_w, columns),
                   how);
      source += plane.rows * plane.cols * channels;
      target += plane.out_rows * plane.out_cols * channels;
    };
    const YuvSampling step = yuv_sampling(wanted.format);
    for (int64_t index = 0; index < from[0]; ++index) {
      resize(1, 1, 1, how.fill);
      resize(step.rows, step.columns, 2, how.fill + 1);
    }
  }
  return tensor_of(info, bytes);
}

Tensor image_colours(const Tensor& image) {
  require_image(image.info(), "input");
  const Tensor host = image.to_host(true);
  const Shape& shape = image.info().image;
  const TensorInfo info = TensorInfo::dense(DType::UInt8, shape);
  std::vector<uint8_t> bytes(info.bytes());
  {
    const ApiCall inside;
    const YuvSampling step = yuv_sampling(image.info().format);
    const auto height = int32_t(shape[2]), width = int32_t(shape[3]);
    ResizerForm form;
    form.height = form.out_h = height;
    form.width = form.out_w = width;
    form.step_y = int32_t(step.rows);
    form.step_x = int32_t(step.columns);
    const int32_t whole[kCropNumbers] = {0, 0, height, width, height, width, 0, 0, 0, 0};
    const auto convert_row = [&](int64_t index, int) {
      const int64_t picture = index / height, row = index % height;
      const auto* source = reinterpret_cast<const uint8_t*>(host.data()) + picture * host.info().shape[1];
      for (int32_t col = 0; col < width; ++col) {
        float pixel[3];
        resizer_pixel(source, form, whole, kColours[0], int32_t(row), col, pixel);
        for (int channel = 0; channel < 3; ++channel)
          bytes[size_t(((picture * 3 + channel) * height + row) * width + col)] = to_byte(pixel[channel]);
      }
    };
    ThreadPool::instance().parallel_for(shape[0] * shape[2], convert_row, kRowsTogether);
  }
  return tensor_of(info, bytes);
}

}  // namespace tcim_lite
