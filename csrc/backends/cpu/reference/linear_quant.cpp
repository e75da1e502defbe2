#include <bit>
#include <cmath>

#include "backends/cpu/kernels/linear/linear_tile.h"
#include "backends/cpu/reference/element.h"

namespace tcim_lite::cpu {
namespace {

// The scale of one output as docs/hmm-format.md section 6 has it.
template <WeightFormat F>
struct Stored : Packed<F> {
  using Packed<F>::kLayout;

  static float scale(const uint8_t* scales, int64_t n) {
    if (kLayout.scale_dtype == DType::Float16) return half_to_float(reinterpret_cast<const uint16_t*>(scales)[n]);
    return std::bit_cast<float>(uint32_t(reinterpret_cast<const int8_t*>(scales)[n] + 127) << 23);
  }
};

template <WeightFormat F>
void linear(const LinearQuantArgs& args) {
  using Format = Stored<F>;
  const int64_t groups = args.groups * Format::kParts;
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t block = 0; block < args.blocks; ++block) {
      const Tile t(args, row, block);
      for (int64_t n = 0; n < kBlockOutputs; ++n) t.acc[n] = 0;
      for (int64_t group = 0; group < groups; ++group) {
        const uint8_t* weights = t.weights + Format::codes_at(group);
        const uint8_t* scales = t.weights + Format::scales_at(groups, group);
        const int8_t* codes = t.codes + group * Format::kInputs;
        int32_t dot[kBlockOutputs] = {};
        for (int64_t k = 0; k < Format::kInputs; ++k) {
          for (int64_t n = 0; n < kBlockOutputs; ++n) dot[n] += code_at(Format::kLayout, weights, n, k) * codes[k];
        }
        for (int64_t n = 0; n < kBlockOutputs; ++n) {
          const float scale = Format::scale(scales, n) * t.scales[group / Format::kParts];
          t.acc[n] = std::fmaf(float(dot[n]), scale, t.acc[n]);
        }
      }
    }
  }
}

// acc = fma(dequantised weight, x, acc): code * scale is exact for every legal scale.
template <WeightFormat F>
void linear_dequantised(const LinearFloatArgs& args) {
  using Format = Stored<F>;
  const int64_t groups = args.cols / Format::kInputs;
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    for (int64_t block = 0; block < args.blocks; ++block) {
      const uint8_t* weights = args.weights + block * args.block_stride;
      float* acc = args.acc + row * args.acc_stride + block * kBlockOutputs;
      for (int64_t n = 0; n < kBlockOutputs; ++n) acc[n] = 0;
      for (int64_t k = 0; k < args.cols; ++k) {
        const int64_t group = k / Format::kInputs, within = k % Format::kInputs;
        const uint8_t* codes = weights + Format::codes_at(group);
        const uint8_t* scales = weights + Format::scales_at(groups, group);
        for (int64_t n = 0; n < kBlockOutputs; ++n) {
          const float weight = float(code_at(Format::kLayout, codes, n, within)) * Format::scale(scales, n);
          acc[n] = std::fmaf(weight, x[k], acc[n]);
        }
      }
    }
  }
}

template <WeightFormat F>
void use(KernelTable& table) {
  LinearKernels& kernels = table.linear[int(F)];
  kernels.quantised = linear<F>;
  kernels.floats = linear_dequantised<F>;
  kernels.few_from = 1;
}

}  // namespace

void TCIM_LITE_USE(linear_quant)(KernelTable& table) {
  for_quantised([&](auto format) { use<format.kValue>(table); });
  table.many_from = 1;
  table.many_rows = kManyRows;
}

}  // namespace tcim_lite::cpu
