// Dot products of any format: what a Linear of any shape and one of experts share. A warp computes an output.
#pragma once

#include <utility>

#include "backends/cuda/kernels/linear.cuh"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda {
namespace any {

constexpr int kWarps = 8, kRows = 8;  // outputs of a block, rows at a time

// Weight (n, k) as float; quantised ones as code * scale (exact).
template <WeightFormat Format>
__device__ __forceinline__ float weight_at(const void* weights, int64_t n, int k, int inputs) {
  if constexpr (Format == WeightFormat::LinearF16)
    return __half2float(static_cast<const __half*>(weights)[n * inputs + k]);
  if constexpr (Format == WeightFormat::LinearF32) return static_cast<const float*>(weights)[n * inputs + k];
  constexpr WeightLayout kLayout = layout_of(Format);
  if constexpr (is_quantized(Format) && !has_items(Format)) {  // as packed
    const auto* block = static_cast<const uint8_t*>(weights) + n / 16 * block_bytes(kLayout, inputs);
    const int64_t group = k / kLayout.scale_inputs;
    const int32_t code = code_at(kLayout, block + codes_offset(kLayout, group), n % 16, k % kLayout.scale_inputs);
    const uint8_t* scales = block + scales_offset(kLayout, inputs, group);
    if constexpr (kLayout.scale_dtype == DType::Int8) return ldexpf(float(code), int8_t(scales[n % 16]));
    return float(code) * __half2float(reinterpret_cast<const __half*>(scales)[n % 16]);
  }
  constexpr bool kFour = Format == WeightFormat::LinearW4;
  const auto* item =
      static_cast<const uint8_t*>(weights) + (n / 16 * (inputs / 64) + k / 64) * (kFour ? kItemW4 : kItemW8);
  const int g = int(n % 8), high = int(n % 16 / 8), t = k % 64 / 16;
  const int lane = 4 * g + t;
  if constexpr (kFour) {
    const int byte = item[lane * 16 + k % 16];
    const int code = int(int8_t(uint8_t(high ? byte & 0xf0 : byte << 4))) / 16;
    return float(code) * __half2float(reinterpret_cast<const __half*>(item + 512)[2 * g + high]);
  }
  const int word = k % 8 / 4 * 2 + high;
  const int code = int8_t(item[k % 16 / 8 * 512 + lane * 16 + word * 4 + k % 4]);
  return ldexpf(float(code), int8_t(item[1024 + 2 * g + high]));
}

// A lane has one value of each half of a group of 64. Makes of them the codes of docs/numerics.md section 3 times 2^e.
__device__ __forceinline__ void round_to_group_codes(float (&v)[2]) {
  float amax = fmaxf(fabsf(v[0]), fabsf(v[1]));
#pragma unroll
  for (int lane = 1; lane < 32; lane *= 2) amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, lane));
  const int exponent = exponent_of(amax);
#pragma unroll
  for (int i = 0; i < 2; ++i) v[i] = (with_code(v[i], power_of_two(-exponent)) - kRounder) * power_of_two(exponent);
}

// Output n of up to kRows rows; row_of(r) is where row r begins. In all lanes.
template <typename T, WeightFormat Format, bool QuantizeX, typename RowOf>
__device__ void dots(const void* weights, int inputs, int64_t n, int rows, int lane, const RowOf& row_of, float* sums) {
  float acc[kRows] = {};
  constexpr int kAtOnce = QuantizeX ? 2 : 1;  // quantised: a group, whose inputs are a multiple of 64
  for (int k = lane; k < inputs; k += 32 * kAtOnce) {
    float w[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) w[i] = weight_at<Format>(weights, n, k + 32 * i, inputs);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= rows) continue;
      const T* x = row_of(r) + k;
      float v[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) v[i] = load(x + 32 * i);
      if constexpr (QuantizeX) round_to_group_codes(v);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) acc[r] = fmaf(w[i], v[i], acc[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) sums[r] = warp_sum(acc[r]);
}

template <WeightFormat Format>
struct FormatConstant {
  static constexpr WeightFormat kValue = Format;
};

template <typename Body, int... Before>
void with_format(WeightFormat format, const Body& body, std::integer_sequence<int, Before...>) {
  ((format == WeightFormat(Before + 1) ? body(FormatConstant<WeightFormat(Before + 1)>()) : void()), ...);
}

// Calls `body` with the FormatConstant of a packed format; validate() refuses Dense.
template <typename Body>
void with_format(WeightFormat format, const Body& body) {
  static_assert(int(WeightFormat::Dense) == 0);
  with_format(format, body, std::make_integer_sequence<int, kWeightFormats - 1>());
}

// Calls `use` with the element, the FormatConstant and whether activations are quantised, which some kernels of
// quantised weights leave to others.
template <typename Use>
void with_kernel(Elem elem, WeightFormat format, bool quantize_x, const Use& use) {
  const auto of = [&](auto element) {
    with_format(format, [&](auto chosen) {
      constexpr WeightFormat kFormat = decltype(chosen)::kValue;
      if constexpr (is_quantized(kFormat) && !has_items(kFormat)) {
        if (quantize_x) return use(element, chosen, std::true_type());
      }
      use(element, chosen, std::false_type());
    });
  };
  if (elem == kF16) of(__half());
  if (elem == kF32) of(float());
}

}  // namespace any
}  // namespace tcim_lite::cuda
