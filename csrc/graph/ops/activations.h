// How Linear and MoELinear round the activations that they read, where it is not the usual way: the attribute
// `activations`.
#pragma once

#include <string_view>

#include "graph/ops/op_check.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {

constexpr std::string_view kActivations = "activations";

// Refuses the attribute where it is wrong; absent is right.
void check_activations(const OpCheck& op, DType dtype, const Value& weight);

// Whether the step of `op` takes the vendor's block format, by the attribute or by TCIM_LITE_NUMERICS. Throws
// Error(Unsupported) where it cannot.
bool wants_hidden_exponents(const PlanBuilder& plan, const Op& op, const LinearSpec& step);

// Whether `op` is a SiluMul that a Linear can take as its epilogue: silu without a limit.
inline bool is_plain_silu_mul(const Op& op) {
  return op.kind == OpKind::SiluMul && op.find("limit") == nullptr && op.find("function") == nullptr;
}

}  // namespace tcim_lite::ops
