#include "backends/cpu/reference/conv_end.h"

namespace tcim_lite::cpu {
namespace {

template <typename Row>
void depthwise(const DepthwiseArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* residual = args.residual ? Row::at(args.residual, row * args.cols) : nullptr;
    void* y = Row::at(args.y, row * args.cols);
    for (int64_t i = 0; i < args.cols; ++i) {
      float sum = 0;
      for (int64_t tap = 0; tap < args.taps; ++tap)
        sum = std::fmaf(args.weights[tap], args.x[row * args.x_stride + i + args.offsets[tap]], sum);
      store_sum<Row>(args.end, args.bias, residual, y, i, sum);
    }
  }
}

}  // namespace

void use_depthwise_ref(KernelTable& table) { enter(table.depthwise, depthwise<F16Row>, depthwise<F32Row>); }

}  // namespace tcim_lite::cpu
