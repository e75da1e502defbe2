// Resizing of semi-planar images, and their colours, on the host. What is a guess: docs/numerics.md, section 11.
#pragma once

#include <cstdint>

#include "runtime/tensor.h"

namespace tcim_lite {

struct ImageResize {
  int64_t x = 0, y = 0, w = 0, h = 0;                // of the image
  int64_t left = 0, top = 0, right = 0, bottom = 0;  // around what it becomes
  bool nearest = false;                              // else bilinear
  bool corners = false;                              // centres of the corner pixels coincide, else their edges
  int64_t fill[3] = {0, 128, 128};                   // Y, U and V around it
};

// A new host tensor of images like `wanted`, which has the format and the batch of `image`. Both throw Error(Argument)
// for what does not fit.
Tensor resized_image(const Tensor& image, const TensorInfo& wanted, const ImageResize& how);

// A new host tensor, uint8 [batch, 3, height, width]: red, green and blue.
Tensor image_colours(const Tensor& image);

}  // namespace tcim_lite
