#include "graph/ops/activations.h"

#include <string>

#include "base/error.h"

namespace tcim_lite::ops {
namespace {

constexpr std::string_view kHiddenExponent = "hidden_exponent";

bool may_hide_exponents(bool halves, WeightFormat format) { return halves && hides_exponents(format); }

// "linear_w4 or linear_w8"
std::string fitting_formats() {
  std::string names;
  for (int code = 0; code < kWeightFormats; ++code) {
    if (hides_exponents(WeightFormat(code)))
      names += (names.empty() ? "" : " or ") + std::string(name_of(WeightFormat(code)));
  }
  return names;
}

bool wants_hidden_exponents(const PlanBuilder& plan, const Op& op, const LinearSpec& step) {
  if (op.find(kActivations) != nullptr) return true;
  if (plan.numerics() != Numerics::HiddenExponent || !is_quantized(step.format)) return false;
  if (!may_hide_exponents(step.elem == kF16, step.format))
    fail(ErrorCode::Unsupported, "TCIM_LITE_NUMERICS=hidden_exponent: ", name_of(op.kind), " with '",
         plan.value(step.weights_id).name, "', ", describe(plan.value(step.weights_id)),
         "; expected float16 activations and ", fitting_formats(), ", so unset it");
  return true;
}

}  // namespace

void check_activations(const OpCheck& op, DType dtype, const Value& weight) {
  if (!op.has_attribute(kActivations)) return;
  op.text_in(kActivations, {kHiddenExponent});
  if (!may_hide_exponents(dtype == DType::Float16, weight.format))
    op.refuse("attribute 'activations' with activations ", name_of(dtype), " and the weight '", weight.name, "', ",
              describe(weight), "; expected float16 activations and a weight ", fitting_formats());
}

void read_matrix(const PlanBuilder& plan, const Op& op, uint32_t x, size_t weight, LinearSpec& step) {
  const Value& matrix = plan.value(op.inputs[weight]);
  step.elem = plan.values.elem(x);
  step.x = plan.values.rows(x);
  step.format = matrix.format;
  step.weights_id = op.inputs[weight];
  step.outputs = matrix.shape.end()[-2];
  step.inputs = matrix.shape.back();
  if (op.inputs.size() > weight + 1) step.bias_id = op.inputs[weight + 1];
  step.float_math = plan.numerics() == Numerics::Float;
  step.hidden_exponent = wants_hidden_exponents(plan, op, step);
}

void cost_matrix(const Value& weight, uint64_t rows, OpCost& cost) {
  cost.work = WorkKind::Linear;
  cost.quantized = is_quantized(weight.format);
  cost.operations = 2 * rows * uint64_t(weight.shape.end()[-2] * weight.shape.back());
}

void cost_linear(const Graph& graph, const Op& op, OpCost& cost) {
  const Shape& x = graph.values[op.inputs[0]].shape;
  cost_matrix(graph.values[op.inputs[1]], uint64_t(num_elements(x) / x.back()), cost);
}

}  // namespace tcim_lite::ops
