// Semi-planar 8-bit images: all luma rows, then the chroma rows with U and V interleaved, one image after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/strided_copy.h"
#include "runtime/tensor.h"

namespace tcim_lite {

struct YuvSampling {
  int64_t rows, columns;  // luma rows and columns per chroma sample
};

// Throws Error(Argument) for Format::ND.
YuvSampling yuv_sampling(Format format);

// uint8 on the host, 3/2, 2 or 3 bytes a pixel for 420, 422 and 444. Throws Error(Argument) for sizes the format cannot
// have, and for Format::ND.
TensorInfo yuv_info(int64_t batch, int64_t width, int64_t height, Format format);

// What the API says of `info`, uint8 [batch, bytes] of images in this format: for ND, luma alone, a plain array
// [batch, 1, height, width].
TensorInfo as_image(TensorInfo info, int64_t width, int64_t height, Format format);

// The bytes of images in an array of the shape that the API reports, [batch, 3, height, width]. It has more elements
// than the images have bytes: the vendor's programs put an image first, and zeros behind it. Nothing if `array` has
// another shape, or as many elements as `info`. `what` begins the message if something else is behind an image
// (Error(Shape)) or a value does not fit (Error(Argument)).
std::optional<std::vector<std::byte>> images_without_padding(const TensorInfo& info, const ArrayView& array,
                                                             std::string_view what);

struct YuvPlanes {
  Tensor y;   // [batch, height, width]
  Tensor uv;  // [batch, chroma rows, chroma columns, 2]
};

// Views that share the image's memory. Throws Error(Argument) for a tensor that yuv_info does not describe.
YuvPlanes split_yuv(const Tensor& image);

}  // namespace tcim_lite
