// Which 1x1 convolutions are computed within the depthwise ones that read them, on two threads. The bits are those of
// two steps: tests/onnx/test_convolutions.py.
#include "backends/cpu/layouts.h"

#include <cstdlib>

#include "check.h"
#include "graph_maker.h"

using namespace tcim_lite;
using tcim_lite::test::GraphMaker;

namespace {

struct Plane {
  int64_t channels, height, width, kernel_h, kernel_w;
};

uint32_t conv(GraphMaker& maker, uint32_t x, const Plane& p, int64_t kernel_h, int64_t kernel_w, int64_t groups) {
  const auto two = [](int64_t a, int64_t b) { return concat(a, ",", b); };
  const uint32_t weight = maker.weight({p.channels, p.channels / groups * kernel_h * kernel_w});
  return maker.op(OpKind::Conv, {x, weight}, {1, p.channels, p.height, p.width},
                  {{"kernel", two(kernel_h, kernel_w)},
                   {"strides", two(1, 1)},
                   {"pads", two(kernel_h / 2, kernel_w / 2)},
                   {"dilations", two(1, 1)},
                   {"upsample", two(1, 1)},
                   {"groups", groups}});
}

bool joins(const Plane& plane) {
  GraphMaker maker(DType::Float32);
  const uint32_t x = maker.input({1, plane.channels, plane.height, plane.width});
  const uint32_t in_blocks = conv(maker, x, plane, 1, 1, 1), wide = conv(maker, in_blocks, plane, 1, 1, 1);
  const uint32_t deep = conv(maker, wide, plane, plane.kernel_h, plane.kernel_w, plane.channels);
  Graph& graph = maker.graph();
  graph.outputs = {deep};
  cpu::Layouts layouts;
  build_plan(graph, Numerics::AsCompiled, Joins::Products, [&](const Plan& plan) {
    layouts = cpu::Layouts(graph, plan);
    return layouts.forms();
  });
  return layouts.joined(wide) != nullptr;
}

}  // namespace

int main() {
  setenv("TCIM_LITE_THREADS", "2", 1);
  CHECK(joins({96, 112, 112, 3, 3}));
  CHECK(joins({32, 56, 56, 3, 3}));
  CHECK(joins({128, 1, 1000, 1, 9}));
  CHECK(joins({960, 7, 7, 3, 3}));
  CHECK(!joins({32, 1, 1000, 1, 9}));    // one task
  CHECK(!joins({64, 1, 1000, 1, 9}));    // a task a thread
  CHECK(!joins({128, 1, 16000, 1, 9}));  // a row that the second cache does not hold
  CHECK(!joins({32, 300, 300, 3, 3}));   // too many rows that two tasks compute
  return check_result();
}
