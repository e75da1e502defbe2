// One pixel of a Resizer, in fp32: the same source for the CPU and the GPU (docs/numerics.md, section 11).
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define TCIM_LITE_EVERYWHERE static __host__ __device__ inline
#else
#define TCIM_LITE_EVERYWHERE static inline
#endif

namespace tcim_lite {

constexpr int kCropNumbers = 10;   // y, x, h, w of the image; rows and columns they become; top, left, bottom, right
constexpr int kColourNumbers = 6;  // of a channel: the weights of Y, U and V, an offset; then a factor and an addend

struct ResizerForm {
  int32_t height = 1, width = 1;   // of the image
  int32_t step_y = 0, step_x = 0;  // luma rows and columns to a chroma sample; 0: no chroma
  int32_t out_h = 1, out_w = 1;    // of the result
  float fill[3] = {};              // a pixel of the border, 0 to 255
};

TCIM_LITE_EVERYWHERE int32_t resizer_between(int32_t value, int32_t low, int32_t high) {
  return value < low ? low : value > high ? high : value;
}
TCIM_LITE_EVERYWHERE float resizer_between(float value, float low, float high) {
  return value < low ? low : value > high ? high : value;
}

// At a row and column of a plane of every `step`-th byte, between its four neighbours.
TCIM_LITE_EVERYWHERE float resizer_sample(const uint8_t* plane, int32_t rows, int32_t cols, int32_t step, float row,
                                          float col) {
  row = resizer_between(row, 0.0f, float(rows - 1));
  col = resizer_between(col, 0.0f, float(cols - 1));
  const int32_t y = int32_t(row), x = int32_t(col);
  const int32_t below = y + 1 < rows ? y + 1 : y, right = x + 1 < cols ? x + 1 : x;
  const float down = row - float(y), aside = col - float(x);
  const uint8_t *a = plane + int64_t(y) * cols * step, *b = plane + int64_t(below) * cols * step;
  const float first = float(a[x * step]) + (float(a[right * step]) - float(a[x * step])) * aside;
  const float second = float(b[x * step]) + (float(b[right * step]) - float(b[x * step])) * aside;
  return first + (second - first) * down;
}

// Where element `i` of `out` that `size` elements from `first` on become lies in the image.
TCIM_LITE_EVERYWHERE float resizer_place(int32_t i, int32_t first, int32_t size, int32_t out) {
  const float place = (float(i) + 0.5f) * (float(size) / float(out)) - 0.5f;
  return resizer_between(place, 0.0f, float(size - 1)) + float(first);
}

// Where that lies in a plane of chroma: within the part's own samples, because what is beyond may be anything.
TCIM_LITE_EVERYWHERE float resizer_chroma(float place, int32_t first, int32_t size, int32_t step) {
  return resizer_between((place + 0.5f) / float(step) - 0.5f, float(first / step), float((first + size - 1) / step));
}

// The three channels of pixel (row, col) of the result. `crop` [kCropNumbers] is brought into the image;
// `colours` is [3, kColourNumbers].
TCIM_LITE_EVERYWHERE void resizer_pixel(const uint8_t* image, const ResizerForm& form, const int32_t* crop,
                                        const float* colours, int32_t row, int32_t col, float* result) {
  const int32_t y = resizer_between(crop[0], 0, form.height - 1), x = resizer_between(crop[1], 0, form.width - 1);
  const int32_t h = resizer_between(crop[2], 1, form.height - y), w = resizer_between(crop[3], 1, form.width - x);
  const int32_t out_h = resizer_between(crop[4], 1, form.out_h), out_w = resizer_between(crop[5], 1, form.out_w);
  const int32_t top = resizer_between(crop[6], 0, form.out_h), left = resizer_between(crop[7], 0, form.out_w);
  const bool inside = row >= top && row - top < out_h && col >= left && col - left < out_w;
  float luma = 0, u = 128, v = 128;
  if (inside) {
    const float at_y = resizer_place(row - top, y, h, out_h), at_x = resizer_place(col - left, x, w, out_w);
    luma = resizer_sample(image, form.height, form.width, 1, at_y, at_x);
    if (form.step_y != 0) {
      const uint8_t* chroma = image + int64_t(form.height) * form.width;
      const int32_t rows = form.height / form.step_y, cols = form.width / form.step_x;
      const float c_y = resizer_chroma(at_y, y, h, form.step_y), c_x = resizer_chroma(at_x, x, w, form.step_x);
      u = resizer_sample(chroma, rows, cols, 2, c_y, c_x);
      v = resizer_sample(chroma + 1, rows, cols, 2, c_y, c_x);
    }
  }
  for (int channel = 0; channel < 3; ++channel) {
    const float* k = colours + channel * kColourNumbers;
    float colour = form.fill[channel];
    if (inside) colour = resizer_between(k[0] * luma + k[1] * u + k[2] * v + k[3], 0.0f, 255.0f);
    result[channel] = colour * k[4] + k[5];
  }
}

}  // namespace tcim_lite
