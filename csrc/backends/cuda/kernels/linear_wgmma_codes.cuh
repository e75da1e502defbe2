// Items of quantised weights as the fp16 operand of Hopper's products (linear_wgmma.cu).
#pragma once

#include "backends/cuda/kernels/linear.cuh"
#include "backends/cuda/kernels/mma.cuh"

namespace tcim_lite::cuda {

__device__ __forceinline__ __half2 halves(uint32_t bits) { return *reinterpret_cast<const __half2*>(&bits); }
__device__ __forceinline__ uint32_t bits(__half2 v) { return *reinterpret_cast<const uint32_t*>(&v); }

// A lane's codes of an item, and the scales of outputs g and g + 8.
template <WeightFormat Format>
struct Codes;

// 0x6400 is 1024 in fp16, whose last bit is 1.
template <>
struct Codes<WeightFormat::LinearW4> {
  uint32_t words[4];
  __half2 low, high;

  __device__ __forceinline__ Codes(const char* item, int lane) {
    const uint4 all = *reinterpret_cast<const uint4*>(item + lane * 16);
    words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
    const __half2 both = *reinterpret_cast<const __half2*>(item + kScalesW4 + lane / 4 * 4);
    low = __low2half2(both), high = __high2half2(both);
  }
  // 1024 + 8, and 1024 + 16 * 8.
  struct Bias {
    uint32_t low, high;
    __device__ __forceinline__ explicit Bias(uint32_t zero) : low(0x64086408 + zero), high(0x64806480 + zero) {}
  };
  // Operand a of inputs 16 step ..: exact codes, then one rounding.
  __device__ __forceinline__ void widen(int step, const Bias& bias, uint32_t (&a)[4]) const {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const uint32_t w = words[step] >> (8 * part);
      const __half2 first = __hsub2(halves((w & 0x000f000f) ^ bias.low), __float2half2_rn(1024 + 8));
      const __half2 second =
          __hfma2(halves((w & 0x00f000f0) ^ bias.high), __float2half2_rn(1.0f / 16), __float2half2_rn(-64 - 8));
      a[2 * part] = bits(__hmul2(first, low)), a[2 * part + 1] = bits(__hmul2(second, high));
    }
  }
};

template <>
struct Codes<WeightFormat::LinearW8> {
  uint32_t words[8];
  __half2 scale[2], offset[2];

  __device__ __forceinline__ Codes(const char* item, int lane) {
    const uint4 first = *reinterpret_cast<const uint4*>(item + lane * 16),
                second = *reinterpret_cast<const uint4*>(item + 512 + lane * 16);
    words[0] = first.x, words[1] = first.y, words[2] = first.z, words[3] = first.w;
    words[4] = second.x, words[5] = second.y, words[6] = second.z, words[7] = second.w;
    const int both = *reinterpret_cast<const int16_t*>(item + 1024 + lane / 4 * 2);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float power = power_of_two(n == 0 ? int8_t(both & 0xff) : both >> 8);
      scale[n] = __float2half2_rn(power), offset[n] = __hmul2(scale[n], __float2half2_rn(-1024 - 128));
    }
  }
  struct Bias {
    uint32_t all;
    __device__ __forceinline__ explicit Bias(uint32_t zero) : all(0x64806480 + zero) {}
  };
  // Exact: 1024 + 128 times the scale is an fp16 number. A group of zeros may have a scale that becomes 0.
  __device__ __forceinline__ void widen(int step, const Bias& bias, uint32_t (&a)[4]) const {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const uint32_t w = words[2 * step + part % 2] >> (part / 2 * 8);
      a[part] = bits(__hfma2(halves((w & 0x00ff00ff) ^ bias.all), scale[part % 2], offset[part % 2]));
    }
  }
};

}  // namespace tcim_lite::cuda
