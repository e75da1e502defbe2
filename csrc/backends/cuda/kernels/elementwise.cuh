// What elementwise ops compute.
#pragma once

#include "graph/plan/elem.h"

namespace tcim_lite::cuda {

// One line for each ElementwiseOp.
template <ElementwiseOp op>
__device__ __forceinline__ float apply(float a, float b) {
  if constexpr (op == kAdd) return a + b;
  if constexpr (op == kMul) return a * b;
  if constexpr (op == kSub) return a - b;
  if constexpr (op == kDiv) return a / b;
  if constexpr (op == kMax) return a < b ? b : a;
  if constexpr (op == kMin) return b < a ? b : a;
  if constexpr (op == kPow) return powf(a, b);
  if constexpr (op == kPRelu) return a < 0 ? a * b : a;
  if constexpr (op == kEqual) return a == b ? 1.0f : 0.0f;
  if constexpr (op == kLess) return a < b ? 1.0f : 0.0f;
}

// The same where the op is known when the kernel runs.
__device__ __forceinline__ float apply(int op, float a, float b) {
#define TCIM_LITE_ELEMENTWISE(name, version, meaning) \
  if (op == k##name) return apply<k##name>(a, b);
#include "graph/ops.def"
  return 0;
}

}  // namespace tcim_lite::cuda
