#include <cmath>

#include "backends/cpu/reference/element.h"

namespace tcim_lite::cpu {
namespace {

template <WeightFormat Format>
void linear(const LinearFloatArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    for (int64_t block = 0; block < args.blocks; ++block) {
      const uint8_t* weights = args.weights + block * args.block_stride;
      float acc[kBlockOutputs] = {};
      for (int64_t k = 0; k < args.cols; ++k) {
        for (int64_t n = 0; n < kBlockOutputs; ++n) {
          const int64_t at = float_offset(layout_of(Format), n, k);
          const float weight = Format == WeightFormat::LinearF16
                                   ? half_to_float(reinterpret_cast<const uint16_t*>(weights)[at])
                                   : reinterpret_cast<const float*>(weights)[at];
          acc[n] = std::fmaf(weight, x[k], acc[n]);
        }
      }
      float* out = args.acc + row * args.acc_stride + block * kBlockOutputs;
      for (int64_t n = 0; n < kBlockOutputs; ++n) out[n] = acc[n];
    }
  }
}

}  // namespace

void TCIM_LITE_USE(linear_float)(KernelTable& table) {
  table.linear[int(WeightFormat::LinearF16)].floats = linear<WeightFormat::LinearF16>;
  table.linear[int(WeightFormat::LinearF32)].floats = linear<WeightFormat::LinearF32>;
}

}  // namespace tcim_lite::cpu
