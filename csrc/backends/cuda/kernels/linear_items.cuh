// Items of quantised weights (repack.cu) on the int8 tensor cores.
#pragma once

#include "backends/cuda/kernels/linear.cuh"
#include "backends/cuda/kernels/mma.cuh"

namespace tcim_lite::cuda {

template <WeightFormat Format>
constexpr int kItemBytes = Format == WeightFormat::LinearW4 ? kItemW4 : kItemW8;

// A lane's codes of an item, 4-bit ones times 16, and the scales of outputs g and g + 8.
template <WeightFormat Format>
__device__ __forceinline__ void load_item(const char* item, int lane, uint32_t (&a)[8], float (&scale)[2]) {
  const int g = lane / 4;
  const uint4 first = *reinterpret_cast<const uint4*>(item + lane * 16);
  if constexpr (Format == WeightFormat::LinearW4) {
    a[0] = low_codes(first.x), a[1] = high_codes(first.x), a[2] = low_codes(first.y), a[3] = high_codes(first.y);
    a[4] = low_codes(first.z), a[5] = high_codes(first.z), a[6] = low_codes(first.w), a[7] = high_codes(first.w);
    const float2 both = __half22float2(*reinterpret_cast<const __half2*>(item + 512 + 4 * g));
    scale[0] = both.x, scale[1] = both.y;
  } else {
    const uint4 second = *reinterpret_cast<const uint4*>(item + 512 + lane * 16);
    a[0] = first.x, a[1] = first.y, a[2] = first.z, a[3] = first.w;
    a[4] = second.x, a[5] = second.y, a[6] = second.z, a[7] = second.w;
    const int both = *reinterpret_cast<const int16_t*>(item + 1024 + 2 * g);
    scale[0] = power_of_two(int8_t(both & 0xff)), scale[1] = power_of_two(both >> 8);
  }
}

// acc += the group's products of an item's 16 outputs and 8 rows: exact sums, then both scales.
__device__ __forceinline__ void add_products(float (&acc)[4], const uint32_t (&a)[8], const uint4& x,
                                             const float (&scale)[2], const float2& x_scale) {
  int dot[4] = {0, 0, 0, 0};
  mma_int8(dot, a[0], a[1], a[2], a[3], x.x, x.y);
  mma_int8(dot, a[4], a[5], a[6], a[7], x.z, x.w);
  acc[0] = fmaf(float(dot[0]), scale[0] * x_scale.x, acc[0]);
  acc[1] = fmaf(float(dot[1]), scale[0] * x_scale.y, acc[1]);
  acc[2] = fmaf(float(dot[2]), scale[1] * x_scale.x, acc[2]);
  acc[3] = fmaf(float(dot[3]), scale[1] * x_scale.y, acc[3]);
}

}  // namespace tcim_lite::cuda
