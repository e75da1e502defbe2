// Convolutions channel by channel, from planes with their padding around them.
#include "backends/cpu/kernels/conv_end.h"

namespace tcim_lite::cpu {
namespace {

// Taps: how many, or 0 where only args knows. Known, they are unrolled and their weights stay in registers.
template <typename T, int Taps>
void depthwise(const DepthwiseArgs& args) {
  with_end<T>(args.end, [&](auto end) {
    const int64_t taps = Taps > 0 ? Taps : args.taps;
    for (int64_t row = 0; row < args.rows; ++row) {
      const float* x = args.x + row * args.x_stride;
      const T* residual = args.residual ? static_cast<const T*>(args.residual) + row * args.cols : nullptr;
      T* y = static_cast<T*>(args.y) + row * args.cols;
      for_lanes(args.cols, [&](int64_t i, auto lanes) {
        Vec sum = broadcast(0.0f);
#pragma GCC unroll 9
        for (int64_t tap = 0; tap < taps; ++tap)
          sum = fma(broadcast(args.weights[tap]), load(x + i + args.offsets[tap]), sum);
        end.store_sum(sum, args.bias, residual, y, i, lanes);
      });
    }
  });
}

template <typename T>
void by_taps(const DepthwiseArgs& args) {
  if (args.taps == 9) return depthwise<T, 9>(args);
  depthwise<T, 0>(args);
}

}  // namespace

void TCIM_LITE_USE(depthwise)(KernelTable& table) { enter(table.depthwise, by_taps<uint16_t>, by_taps<float>); }

}  // namespace tcim_lite::cpu
