// T, the element of tensors between ops, and the ops that combine two such elements into one.
#pragma once

#include <cstdint>

namespace tcim_lite {

enum Elem : int { kF16 = 0, kF32 = 1 };

// Ops of two operands of one shape, y[i] = op(a[i], b[i]): kAdd and whatever else ops.def lists as elementwise.
enum ElementwiseOp : int {
#define TCIM_LITE_ELEMENTWISE(name, version, meaning) k##name,
#include "graph/ops.def"
  kElementwiseOps
};

constexpr int64_t elem_bytes(Elem elem) { return elem == kF16 ? 2 : 4; }

}  // namespace tcim_lite
