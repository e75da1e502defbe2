#include "backends/cpu/reference/conv_end.h"

namespace tcim_lite::cpu {
namespace {

template <typename Row>
void depthwise_planes(const DepthwisePlanesArgs& args) {
  const BlockWindow::Axis h{args.in_rows, 3, args.stride, 1, 1}, w{args.in_cols, 3, args.stride, 1, 1};
  for (int64_t i = 0; i < args.planes * args.rows * args.cols; ++i) {
    const int64_t column = i % args.cols, row = i / args.cols % args.rows, plane = i / args.cols / args.rows;
    const void* x = Row::at(args.x, plane * args.in_rows * args.in_cols);
    float sum = 0;
    const auto value_at = [&](int64_t r, int64_t c) { return Row::load(x, r * args.in_cols + c); };
    for_taps(h, w, args.first + row, column, 0.0f, value_at,
             [&](int64_t tap, float value) { sum = std::fmaf(Row::load(args.weights, plane * 9 + tap), value, sum); });
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
