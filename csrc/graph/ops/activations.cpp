#include "graph/ops/activations.h"

#include "base/error.h"

namespace tcim_lite::ops {
namespace {

constexpr std::string_view kHiddenExponent = "hidden_exponent";

// A code of -128 has no negative, which the kernels of MXFP4 need.
bool may_hide_exponents(bool halves, WeightFormat format) {
  return halves && (format == WeightFormat::LinearW4 || format == WeightFormat::LinearW8);
}

}  // namespace

void check_activations(const OpCheck& op, DType dtype, const Value& weight) {
  if (!op.has_attribute(kActivations)) return;
  op.text_in(kActivations, {kHiddenExponent});
  if (!may_hide_exponents(dtype == DType::Float16, weight.format))
    op.refuse("attribute 'activations' with activations ", name_of(dtype), " and the weight '", weight.name, "', ",
              describe(weight), "; expected float16 activations and a weight linear_w4 or linear_w8");
}

bool wants_hidden_exponents(const PlanBuilder& plan, const Op& op, const LinearSpec& step) {
  if (op.find(kActivations) != nullptr) return true;
  if (plan.numerics() != Numerics::HiddenExponent || !is_quantized(step.format)) return false;
  if (!may_hide_exponents(step.elem == kF16, step.format))
    fail(ErrorCode::Unsupported, "TCIM_LITE_NUMERICS=hidden_exponent: ", name_of(op.kind), " with '",
         plan.value(step.weights_id).name, "', ", describe(plan.value(step.weights_id)),
         "; expected float16 activations and linear_w4 or linear_w8, so unset it");
  return true;
}

}  // namespace tcim_lite::ops
