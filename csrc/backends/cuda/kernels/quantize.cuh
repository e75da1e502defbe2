// Activations of a quantised Linear (docs/numerics.md section 3), by groups of 64 held 8 to a lane by 8 lanes, or
// 16 by 4, and their products with weights.
#pragma once

#include "backends/cuda/kernels/common.cuh"
#include "backends/cuda/kernels/mma.cuh"
#include "graph/weight_format.h"

namespace tcim_lite::cuda {

// e of a group's largest magnitude.
__device__ __forceinline__ int exponent_of(float amax) {
  return min(max(int(__float_as_uint(amax) >> 23) - 127 - 6, -30), 9);
}

// Lane l of every 8 holds values 8 l ..; all 32 lanes take part. The exponent e of their group.
__device__ __forceinline__ int group_exponent(const float (&v)[8]) {
  float amax = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) amax = fmaxf(amax, fabsf(v[i]));
#pragma unroll
  for (int lane = 1; lane < 8; lane *= 2) amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, lane));
  return exponent_of(amax);
}
// 1.5 * 2^23: adding it rounds to an integer, ties to even, and leaves it in the low bits.
constexpr float kRounder = 12582912.0f;
__device__ __forceinline__ float with_code(float v, float inverse) {
  return fminf(fmaxf(v * inverse, -127.0f), 127.0f) + kRounder;
}

// Lanes as in group_exponent(). Returns 2^e.
__device__ __forceinline__ float quantize_group(const float (&v)[8], uint2& codes) {
  const int exponent = group_exponent(v);
  const float inverse = power_of_two(-exponent);
  uint32_t bits[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) bits[i] = __float_as_uint(with_code(v[i], inverse));
  const auto pack = [&](int i) {
    return __byte_perm(__byte_perm(bits[i], bits[i + 1], 0x0040), __byte_perm(bits[i + 2], bits[i + 3], 0x0040),
                       0x5410);
  };
  codes = make_uint2(pack(0), pack(4));
  return power_of_two(exponent);
}

// The same of fp16 values, two a word: 16 to a lane of every 4, and so on to 2 a lane. Codes: four a word.
template <int Lanes, int Words>
__device__ __forceinline__ float quantize_words(const uint32_t (&word)[Words], uint32_t (&codes)[(Words + 1) / 2]) {
  static_assert(Lanes * Words == 32);
  const auto pair = [](uint32_t bits) { return *reinterpret_cast<const __half2*>(&bits); };
  __half2 most = __habs2(pair(word[0]));
#pragma unroll
  for (int i = 1; i < Words; ++i) most = __hmax2(most, __habs2(pair(word[i])));
#pragma unroll
  for (int lane = 1; lane < Lanes; lane *= 2) most = __hmax2(most, __shfl_xor_sync(0xffffffffu, most, lane));
  const float amax = __half2float(__hmax(__low2half(most), __high2half(most)));
  const int exponent = exponent_of(amax);
  // 2^-exponent in two factors, since fp16 ends at 2^15. What the first product loses is far below half a code.
  const int first = min(-exponent, 15);
  const auto power = [&](int n) { return pair(uint32_t(n + 15) * 0x04000400u); };
  const __half2 scale = power(first), rest = power(-exponent - first);
  // Adding 1.5 * 2^10 rounds to an integer, ties to even, and leaves it in the low byte.
  const __half2 middle = pair(0x66006600u), top = pair(0x667f667fu), bottom = pair(0x65816581u);
  uint32_t bits[Words];
#pragma unroll
  for (int i = 0; i < Words; ++i) {
    const __half2 code = __hmin2(__hmax2(__hfma2(__hmul2(pair(word[i]), scale), rest, middle), bottom), top);
    bits[i] = *reinterpret_cast<const uint32_t*>(&code);
  }
#pragma unroll
  for (int i = 0; i < Words; i += 2) codes[i / 2] = __byte_perm(bits[i], i + 1 < Words ? bits[i + 1] : 0, 0x6420);
  return power_of_two(exponent);
}
__device__ __forceinline__ float quantize_halves(const uint4& v, uint2& codes) {
  uint32_t packed[2];
  const float scale = quantize_words<8, 4>({v.x, v.y, v.z, v.w}, packed);
  codes = make_uint2(packed[0], packed[1]);
  return scale;
}
__device__ __forceinline__ float quantize_halves(const uint4 (&v)[2], uint4& codes) {
  uint32_t packed[4];
  const float scale = quantize_words<4, 8>({v[0].x, v[0].y, v[0].z, v[0].w, v[1].x, v[1].y, v[1].z, v[1].w}, packed);
  codes = make_uint4(packed[0], packed[1], packed[2], packed[3]);
  return scale;
}

// To code * 2^e.
__device__ __forceinline__ void round_to_codes(float (&v)[8]) {
  const int exponent = group_exponent(v);
  const float inverse = power_of_two(-exponent), scale = power_of_two(exponent);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = (with_code(v[i], inverse) - kRounder) * scale;
}

__device__ __forceinline__ void load8(const __half* p, float (&v)[8]) {
  const uint4 raw = *reinterpret_cast<const uint4*>(p);
  const __half2* h = reinterpret_cast<const __half2*>(&raw);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = __half22float2(h[i]);
    v[2 * i] = two.x;
    v[2 * i + 1] = two.y;
  }
}
__device__ __forceinline__ void load8(const float* p, float (&v)[8]) {
  const float4 a = reinterpret_cast<const float4*>(p)[0], b = reinterpret_cast<const float4*>(p)[1];
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}
// Weights, which no kernel writes: such loads pass stores on their way.
__device__ __forceinline__ void load8_weights(const float* p, float (&v)[8]) {
  const float4 a = __ldg(reinterpret_cast<const float4*>(p)), b = __ldg(reinterpret_cast<const float4*>(p) + 1);
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}
// Tensors may begin at any element.
template <typename T>
__device__ __forceinline__ void load8_any(const T* p, float (&v)[8]) {
  if (reinterpret_cast<uintptr_t>(p) % 16 == 0) return load8(p, v);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = load(p + i);
}

__device__ __forceinline__ uint4 pack_halves(const float (&v)[8]) {
  uint4 raw;
  __half2* h = reinterpret_cast<__half2*>(&raw);
#pragma unroll
  for (int i = 0; i < 4; ++i) h[i] = __floats2half2_rn(v[2 * i], v[2 * i + 1]);
  return raw;
}

// To fp16, saturating at 65504; NaN stays NaN.
__device__ __forceinline__ uint4 saturated_halves(const float (&v)[8]) {
  const __half2 most = __float2half2_rn(65504.0f), least = __float2half2_rn(-65504.0f);
  uint4 raw;
  __half2* h = reinterpret_cast<__half2*>(&raw);
#pragma unroll
  for (int i = 0; i < 4; ++i) h[i] = __hmax2_nan(__hmin2_nan(__floats2half2_rn(v[2 * i], v[2 * i + 1]), most), least);
  return raw;
}

__device__ __forceinline__ void round_halves(float (&v)[8]) {
  const uint4 raw = saturated_halves(v);
  load8(reinterpret_cast<const __half*>(&raw), v);
}

// 4-bit codes reach the tensor cores times 16.
template <WeightFormat Format>
__device__ __forceinline__ float activation_scale(float scale) {
  return Format == WeightFormat::LinearW4 ? scale * 0.0625f : scale;
}

// Tensors may begin at any element.
__device__ __forceinline__ void store8_any(__half* p, const float (&v)[8]) {
  const uint4 raw = saturated_halves(v);
  if (reinterpret_cast<uintptr_t>(p) % 16 == 0) {
    *reinterpret_cast<uint4*>(p) = raw;
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) p[i] = reinterpret_cast<const __half*>(&raw)[i];
}
__device__ __forceinline__ void store8_any(float* p, const float (&v)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) p[i] = v[i];
}

// Values k .. k + 7 of a row to shared memory as a Linear with weights of this format reads them. Whole warps call it,
// those beyond the row with `inside` false.
template <WeightFormat Format>
__device__ __forceinline__ void store_activations(const uint4& v, int k, bool inside, char* x, float* scales) {
  if constexpr (Format == WeightFormat::LinearF16) {
    if (inside) *reinterpret_cast<uint4*>(x + 2 * k) = v;
  } else {
    uint2 codes;
    const float scale = activation_scale<Format>(quantize_halves(v, codes));
    if (inside) *reinterpret_cast<uint2*>(x + k) = codes;
    if (inside && k % 64 == 0) scales[k / 64] = scale;
  }
}

// dot += an item of quantised weights (repack.cu) times 64 codes of activations; `low` and `high` are its scales of
// outputs g and g + 8, g = lane / 4.
template <WeightFormat Format>
__device__ __forceinline__ void multiply_item(int (&dot)[4], float& low, float& high, const char* item, const uint4& v,
                                              int lane) {
  const int g = lane / 4;
  const uint4 a = *reinterpret_cast<const uint4*>(item + lane * 16);
  if constexpr (Format == WeightFormat::LinearW4) {
    mma_int8(dot, low_codes(a.x), high_codes(a.x), low_codes(a.y), high_codes(a.y), v.x, v.y);
    mma_int8(dot, low_codes(a.z), high_codes(a.z), low_codes(a.w), high_codes(a.w), v.z, v.w);
    const float2 both = __half22float2(*reinterpret_cast<const __half2*>(item + 512 + 4 * g));
    low = both.x;
    high = both.y;
  } else {
    const uint4 b = *reinterpret_cast<const uint4*>(item + 512 + lane * 16);
    mma_int8(dot, a.x, a.y, a.z, a.w, v.x, v.y);
    mma_int8(dot, b.x, b.y, b.z, b.w, v.z, v.w);
    const int both = *reinterpret_cast<const int16_t*>(item + 1024 + 2 * g);
    low = power_of_two(int8_t(both & 0xff));
    high = power_of_two(both >> 8);
  }
}

}  // namespace tcim_lite::cuda
