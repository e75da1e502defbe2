#include "backends/cpu/kernels/conv/conv_end_ref.h"

namespace tcim_lite::cpu {
namespace {

template <typename Row>
void depthwise_planes(const DepthwisePlanesArgs& args) {
  for (int64_t i = 0; i < args.planes * args.rows * args.cols; ++i) {
    const int64_t column = i % args.cols, row = i / args.cols % args.rows, plane = i / args.cols / args.rows;
    const void* x = Row::at(args.x, plane * args.in_rows * args.in_cols);
    float sum = 0;
    for (int64_t tap = 0; tap < 9; ++tap) {
      const int64_t in_row = (args.first + row) * args.stride + tap / 3 - 1;
      const int64_t in_column = column * args.stride + tap % 3 - 1;
      const bool inside = in_row >= 0 && in_row < args.in_rows && in_column >= 0 && in_column < args.in_cols;
      const float value = inside ? Row::load(x, in_row * args.in_cols + in_column) : 0.0f;
      sum = std::fmaf(Row::load(args.weights, plane * 9 + tap), value, sum);
    }
    const int64_t at = plane * args.plane + row * args.cols;
    store_sum<Row>(args.end, args.bias ? args.bias + plane : nullptr,
                   args.residual ? Row::at(args.residual, at) : nullptr, Row::at(args.y, at), column, sum);
  }
}

}  // namespace

void use_depthwise_planes_ref(KernelTable& table) {
  enter(table.depthwise_planes, depthwise_planes<F16Row>, depthwise_planes<F32Row>);
}

}  // namespace tcim_lite::cpu
