// MaxPool and AveragePool.
#include "graph/ops/op_definition.h"
#include "graph/ops/window.h"

namespace tcim_lite::ops {
namespace {

constexpr int64_t kMaxTaps = 1 << 16;

void check_pool(const OpCheck& op) {
  op.arity(1, 1, 1);
  const Value &x = op.input(0), &y = op.output(0);
  const DType dtype = op.tensor(x);
  check_window(op, x, y);
  op.expect(y, dtype, {x.shape[0], x.shape[1], y.shape[2], y.shape[3]});
  const std::vector<int64_t> kernel = numbers(op, "kernel", 2);
  if (kernel[0] * kernel[1] > kMaxTaps)
    op.refuse("attribute 'kernel' makes a window of ", kernel[0] * kernel[1], " taps, the limit is ", kMaxTaps);
}

void check_max_pool(const OpCheck& op) {
  op.attributes({TCIM_LITE_WINDOW_ATTRIBUTES});
  check_pool(op);
}

void check_average_pool(const OpCheck& op) {
  op.attributes({TCIM_LITE_WINDOW_ATTRIBUTES, "extent"});
  check_pool(op);
  if (!op.has_attribute("extent")) return;
  for (const int64_t extent : numbers(op, "extent", 2)) {
    if (extent < 1) op.refuse("attribute 'extent' has ", extent, ", expected at least 1");
  }
}

template <bool mean>
void plan_pool(PlanBuilder& plan, const Op& op) {
  PoolSpec step;
  const Shape &x = plan.value(op.inputs[0]).shape, &y = plan.value(op.outputs[0]).shape;
  step.elem = plan.values.elem(op.inputs[0]);
  step.window = window_of(op, x, y);
  step.planes = x[0] * x[1];
  step.channels = x[1];
  step.mean = mean;
  step.counts_pads = mean && op.find("extent") != nullptr;
  if (step.counts_pads) {
    const std::vector<int64_t> extent = numbers_of(op, "extent");
    step.extent_h = extent[0];
    step.extent_w = extent[1];
  }
  append_map(plan, op, std::move(step));
}

}  // namespace

extern const OpDefinition MaxPool = {
    "x [N, C, H, W] T {kernel: \"kh,kw\", strides, pads (before), dilations, upsample: likewise} -> [N, C, OH, OW] T",
    "the largest of each window", Cut::None, check_max_pool, plan_pool<false>};

extern const OpDefinition AveragePool = {
    "x [N, C, H, W] T {as MaxPool; extent: \"h,w\" (optional)} -> [N, C, OH, OW] T",
    "the mean of each window; with extent, that of the padded input, zeros of the padding count", Cut::None,
    check_average_pool, plan_pool<true>};

}  // namespace tcim_lite::ops
