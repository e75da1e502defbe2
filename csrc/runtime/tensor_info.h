// What a tensor looks like: dtype, shape, strides, format and where it lives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/shape.h"
#include "runtime/buffer.h"

namespace tcim_lite {

enum class Format : uint8_t { ND, YUV420SP, YUV422SP, YUV444SP };

std::string_view name_of(Format format);
Format format_of(std::string_view name);  // ND for a name that is none

// Row-major strides in elements.
Shape dense_strides(const Shape& shape);

struct TensorInfo {
  DType dtype = DType::Float16;
  Shape shape;    // of the elements in memory; of an image [batch, bytes]
  Shape strides;  // in elements, one per axis
  // Of an image, [batch, 3, height, width]: what the API reports as its shape. No four axes have 3/2 elements a pixel.
  Shape image;
  Format format = Format::ND;
  int device_id = kHost;
  std::shared_ptr<const Placement> placement;  // over several devices, the first of which is device_id; null: one
  std::string name;

  // Throws Error(Shape) for an extent below 1 or a size nothing can hold.
  static TensorInfo dense(DType dtype, Shape shape, int device_id = kHost, std::string name = {});

  const Shape& api_shape() const { return image.empty() ? shape : image; }
  // Of an image, those of Y, those of U and V, and where these begin.
  Shape api_strides() const;
  int64_t elements() const { return num_elements(shape); }
  uint64_t bytes() const { return uint64_t(elements()) * uint64_t(size_of(dtype)); }  // of the elements, without gaps
  uint64_t span_bytes() const;                                                        // from the first to the last
  bool is_dense() const;

  TensorInfo ascontiguous() const;
  // Keeps shape and strides. Throws Error(Argument) for a dtype the runtime does not have.
  TensorInfo astype(DType other) const;
  TensorInfo on_host() const;
  // Of a rectangle of these extents that lies inside.
  TensorInfo part(const Shape& extents) const;
};

// "float16 [1, 256, 64]", "uint8 YUV420SP [1, 3, 480, 640]"
std::string to_string(const TensorInfo& info);

// For an error: "; an image has 720 bytes, ...", or nothing for what is no image.
std::string image_note(const TensorInfo& info);

}  // namespace tcim_lite
