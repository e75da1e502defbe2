// What elementwise ops compute.
#pragma once

#include "graph/plan/elem.h"

namespace tcim_lite::cuda {

// One line for each ElementwiseOp.
template <ElementwiseOp op>
__device__ __forceinline__ float apply(float a, float b) {
  if constexpr (op == kAdd) return a + b;
  if constexpr (op == kMul) return a * b;
}

// The same where the op is known when the kernel runs.
__device__ __forceinline__ float apply(int op, float a, float b) {
#define TCIM_LITE_ELEMENTWISE(name, version, meaning) \
  if (op == k##name) return apply<k##name>(a, b);
#include "graph/ops.def"
  return 0;
}

}  // namespace tcim_lite::cuda
