#include <bit>
#include <cmath>

#include "backends/cpu/kernels/element_ref.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kGroup = 64;

// Where a group's codes and scales lie in a block (graph/weight_format.h).
struct W4 {
  static int64_t codes_at(int64_t group) { return group / 2 * 1088 + group % 2 * 512; }
  static int64_t scales_at(int64_t, int64_t group) { return group / 2 * 1088 + 1024 + group % 2 * 32; }
};
struct W8 {
  static int64_t codes_at(int64_t group) { return group * 1024; }
  static int64_t scales_at(int64_t groups, int64_t group) { return groups * 1024 + group * 16; }
};

// dot = sum of (stored code) * a over one group, stored codes unsigned.
void dot_w4(const uint8_t* weights, const int8_t* a, int32_t* dot) {
  for (int64_t k = 0; k < kGroup; k += 8, weights += 64) {
    for (int64_t n = 0; n < kOutputs; ++n) {
      int32_t sum = 0;
      for (int64_t j = 0; j < 4; ++j) {
        const int32_t pair = weights[4 * n + j];
        sum += (pair & 15) * a[k + j] + (pair >> 4) * a[k + 4 + j];
      }
      dot[n] += sum;
    }
  }
}

void dot_w8(const uint8_t* weights, const int8_t* a, int32_t* dot) {
  for (int64_t k = 0; k < kGroup; k += 4, weights += 64) {
    for (int64_t n = 0; n < kOutputs; ++n) {
      int32_t sum = 0;
      for (int64_t j = 0; j < 4; ++j) sum += int32_t(weights[4 * n + j]) * a[k + j];
      dot[n] += sum;
    }
  }
}

float scale_w4(const uint8_t* scales, int64_t n) { return half_to_float(reinterpret_cast<const uint16_t*>(scales)[n]); }

float scale_w8(const uint8_t* scales, int64_t n) {
  const int exponent = reinterpret_cast<const int8_t*>(scales)[n];
  return std::bit_cast<float>(uint32_t(exponent + 127) << 23);
}

template <typename Place, auto Dot, auto Scale, int32_t Offset>
void linear(const LinearQuantArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const int8_t* codes = args.codes + row * args.groups * kGroup;
    for (int64_t block = 0; block < args.blocks; ++block) {
      const uint8_t* weights = args.weights + block * args.block_stride;
      float acc[kOutputs] = {};
      for (int64_t group = 0; group < args.groups; ++group) {
        int32_t dot[kOutputs] = {};
        Dot(weights + Place::codes_at(group), codes + group * kGroup, dot);
        const float row_scale = args.scales[row * args.groups + group];
        const int32_t correction = Offset * args.sums[row * args.groups + group];
        for (int64_t n = 0; n < kOutputs; ++n) {
          const float scale = Scale(weights + Place::scales_at(args.groups, group), n) * row_scale;
          acc[n] = std::fmaf(float(dot[n] - correction), scale, acc[n]);
        }
      }
      float* out = args.acc + row * args.acc_stride + block * kOutputs;
      for (int64_t n = 0; n < kOutputs; ++n) out[n] = acc[n];
    }
  }
}

// acc = fma(dequantised weight, x, acc): code * scale is exact for every legal scale.
template <typename Place, int Bits>
void linear_dequantised(const LinearFloatArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    for (int64_t block = 0; block < args.blocks; ++block) {
      const uint8_t* weights = args.weights + block * args.block_stride;
      float acc[kOutputs] = {};
      float scale[kOutputs] = {};
      for (int64_t k = 0; k < args.cols; ++k) {
        const int64_t group = k / kGroup, within = k % kGroup;
        const uint8_t* codes = weights + Place::codes_at(group);
        if (within == 0) {
          const uint8_t* scales = weights + Place::scales_at(args.cols / kGroup, group);
          for (int64_t n = 0; n < kOutputs; ++n) scale[n] = Bits == 4 ? scale_w4(scales, n) : scale_w8(scales, n);
        }
        for (int64_t n = 0; n < kOutputs; ++n) {
          int32_t code;
          if constexpr (Bits == 4) {
            const int32_t pair = codes[within / 8 * 64 + 4 * n + within % 4];
            code = (within % 8 < 4 ? pair & 15 : pair >> 4) - 8;
          } else {
            code = int32_t(codes[within / 4 * 64 + 4 * n + within % 4]) - 128;
          }
          acc[n] = std::fmaf(float(code) * scale[n], x[k], acc[n]);
        }
      }
      float* out = args.acc + row * args.acc_stride + block * kOutputs;
      for (int64_t n = 0; n < kOutputs; ++n) out[n] = acc[n];
    }
  }
}

}  // namespace

void use_linear_quant_ref(KernelTable& table) {
  table.w4_few_from = table.w8_few_from = 1;
  table.many_from = 1;
  table.many_rows = 64;
  table.linear_w4 = linear<W4, dot_w4, scale_w4, 8>;
  table.linear_w8 = linear<W8, dot_w8, scale_w8, 128>;
  table.linear_w4_float = linear_dequantised<W4, 4>;
  table.linear_w8_float = linear_dequantised<W8, 8>;
}

}  // namespace tcim_lite::cpu
