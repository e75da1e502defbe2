#include "backends/cuda/network_layout.h"

#include <initializer_list>
#include <variant>

namespace tcim_lite::cuda {
namespace {

// Of 16 bytes.
constexpr int64_t kHalves = 8;

bool knows_layouts(const Op& op) {
  switch (op.kind) {
    case OpKind::Conv:
    case OpKind::MaxPool:
    case OpKind::AveragePool:
#define TCIM_LITE_UNARY(name, version, meaning) case OpKind::name:
#include "graph/ops.def"
      return true;
#define TCIM_LITE_ELEMENTWISE(name, version, meaning) case OpKind::name:
#include "graph/ops.def"
      return op.attributes.empty();  // no operand repeats
    default:
      return false;
  }
}

class Layouts {
 public:
  Layouts(const Graph& graph, const Plan& plan) : last_(plan.storage.size()) {
    for (size_t id = 0; id < graph.values.size(); ++id) {
      const Value& value = graph.values[id];
      last_[id] = value.kind == ValueKind::Intermediate && value.dtype == DType::Float16 && value.shape.size() == 4;
    }
    for (const uint32_t id : graph.outputs) last_[id] = false;
    for (const Op& op : graph.ops) {
      if (knows_layouts(op)) continue;
      for (const uint32_t id : op.inputs) last_[id] = false;
      for (const uint32_t id : op.outputs) last_[id] = false;
    }
    do {
      changed_ = false;
      for (const StepSpec& step : plan.steps) std::visit([&](const auto& spec) { take(spec); }, step);
    } while (changed_);
  }

  std::vector<bool> result() && { return std::move(last_); }

 private:
  void keep(uint32_t value) {
    if (!last_[value]) return;
    last_[value] = false;
    changed_ = true;
  }
  // All of them or none.
  void keep_together(std::initializer_list<uint32_t> values) {
    bool all = true;
    for (const uint32_t value : values) all = all && last_[value];
    if (all) return;
    for (const uint32_t value : values) keep(value);
  }

  void take(const ConvSpec& spec) {
    const ConvKind kind = kind_of(spec);
    const bool product = kind == ConvKind::Product;
    if (spec.elem != kF16 || (product && (spec.groups > 1 || spec.channels % kHalves != 0))) keep(spec.x);
    if (spec.elem != kF16 || (kind != ConvKind::Direct && (spec.groups > 1 || spec.outputs % kHalves != 0)))
      keep(spec.y);
    if (!spec.residual.given()) return;
    if (spec.residual.weight) return keep(spec.y);
    keep_together({spec.residual.value, spec.y});
  }
  void take(const PoolSpec& spec) {
    keep_together({spec.x, spec.y});
    if (spec.elem == kF16 && !reduces_planes(spec) && spec.channels % kHalves == 0) return;
    keep(spec.x);
    keep(spec.y);
  }
  void take(const UnarySpec& spec) {
    keep_together({spec.x, spec.y});
    if (spec.elem != kF16) keep(spec.x), keep(spec.y);
  }
  void take(const ElementwiseSpec& spec) {
    keep_together({spec.a.value, spec.b.value, spec.y.value});
    const bool dense = spec.a.stride == spec.a.cols && spec.b.stride == spec.b.cols && spec.y.stride == spec.y.cols;
    if (spec.elem == kF16 && dense) return;
    for (const uint32_t value : {spec.a.value, spec.b.value, spec.y.value}) keep(value);
  }
  // Copies are of graph inputs and outputs, and all other steps of ops that know no layouts.
  template <typename Spec>
  void take(const Spec&) {}

  std::vector<bool> last_;
  bool changed_ = false;
};

}  // namespace

std::vector<bool> values_with_channels_last(const Graph& graph, const Plan& plan) {
  return Layouts(graph, plan).result();
}

// Packed weights of floats lie on a GPU as dense ones do, row by row (kernels/repack.cu).
ConvKind kind_of(const ConvSpec& spec) {
  if (spec.quantized()) return ConvKind::Linear;
  // Products would compute these mostly for nothing.
  const bool small = spec.outputs < 4 || (spec.groups > 1 && spec.outputs < 16 && spec.inputs() <= 288);
  return small ? ConvKind::Direct : ConvKind::Product;
}

bool reduces_planes(const PoolSpec& spec) {
  const auto covers = [](const Window::Axis& axis) {
    return axis.out == 1 && axis.kernel == axis.in && axis.pad == 0 && axis.dilation == 1 && axis.upsample == 1;
  };
  const Window& window = spec.window;
  return covers(window.h) && covers(window.w) &&
         (!spec.counts_pads || (spec.extent_h >= window.h.in && spec.extent_w >= window.w.in));
}

}  // namespace tcim_lite::cuda
