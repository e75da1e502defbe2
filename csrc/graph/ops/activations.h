// What Linear and MoELinear share: their matrices, and how they round the activations that they read where it is not
// the usual way (the attribute `activations`).
#pragma once

#include <string_view>

#include "graph/cost.h"
#include "graph/ops/op_check.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {

constexpr std::string_view kActivations = "activations";

// Refuses the attribute where it is wrong; absent is right.
void check_activations(const OpCheck& op, DType dtype, const Value& weight);

// Of `step` what it reads: `x`, and the matrix (or one for each expert) that is operand `weight` of `op`, with the bias
// behind it. Throws Error(Unsupported) where TCIM_LITE_NUMERICS asks for a block format that these do not have.
void read_matrix(const PlanBuilder& plan, const Op& op, uint32_t x, size_t weight, LinearSpec& step);

// Of `rows` rows by a matrix, or by one of those in `weight`.
void cost_matrix(const Value& weight, uint64_t rows, OpCost& cost);
// Of an op that multiplies each row of operand 0 by a matrix of operand 1.
void cost_linear(const Graph& graph, const Op& op, OpCost& cost);

// Whether `op` is a SiluMul that a Linear can take as its epilogue: silu without a limit.
inline bool is_plain_silu_mul(const Op& op) {
  return op.kind == OpKind::SiluMul && op.find("limit") == nullptr && op.find("function") == nullptr;
}

}  // namespace tcim_lite::ops
