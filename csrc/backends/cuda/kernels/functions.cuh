// What unary ops compute.
#pragma once

#include "graph/plan/elem.h"

namespace tcim_lite::cuda {

// a where a is NaN.
__device__ __forceinline__ float larger(float a, float b) { return a < b ? b : a; }
__device__ __forceinline__ float smaller(float a, float b) { return b < a ? b : a; }

// One line for each UnaryOp.
template <UnaryOp op>
__device__ __forceinline__ float apply(float x, float alpha, float beta) {
  if constexpr (op == kRelu) return x < 0 ? 0.0f : x;
  if constexpr (op == kLeakyRelu) return x < 0 ? alpha * x : x;
  if constexpr (op == kClip) return smaller(larger(x, alpha), beta);
  if constexpr (op == kSigmoid) return 1.0f / (1.0f + expf(-x));
  if constexpr (op == kHardSigmoid) return smaller(larger(fmaf(alpha, x, beta), 0.0f), 1.0f);
  if constexpr (op == kHardSwish) return x * smaller(larger(fmaf(x, 1.0f / 6.0f, 0.5f), 0.0f), 1.0f);
  if constexpr (op == kSilu) return x / (1.0f + expf(-x));
  if constexpr (op == kTanh) return tanhf(x);
  if constexpr (op == kErf) return erff(x);
  if constexpr (op == kGelu) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  if constexpr (op == kGeluTanh) return 0.5f * x * (1.0f + tanhf(0.79788456f * fmaf(0.044715f * x, x * x, x)));
  if constexpr (op == kElu) return x < 0 ? alpha * (expf(x) - 1.0f) : beta * x;
  if constexpr (op == kExp) return expf(x);
  if constexpr (op == kLog) return logf(x);
  if constexpr (op == kSoftplus) return larger(x, 0.0f) + log1pf(expf(-fabsf(x)));
  if constexpr (op == kSqrt) return sqrtf(x);
  if constexpr (op == kReciprocal) return 1.0f / x;
  if constexpr (op == kNeg) return -x;
  if constexpr (op == kAbs) return fabsf(x);
  if constexpr (op == kFloor) return floorf(x);
  if constexpr (op == kCeil) return ceilf(x);
  if constexpr (op == kRound) return rintf(x);
  if constexpr (op == kSign) return x < 0 ? -1.0f : 0 < x ? 1.0f : x;
  if constexpr (op == kSin) return sinf(x);
  if constexpr (op == kCos) return cosf(x);
  if constexpr (op == kAtan) return atanf(x);
  if constexpr (op == kFakeQuantize)
    return (smaller(larger(rintf(x / alpha), beta), beta + (kCodes - 1)) + 0.0f) * alpha;  // no code is -0
}

// The same where the op is known when the kernel runs.
__device__ __forceinline__ float apply_unary(int op, float x, float alpha, float beta) {
  switch (op) {
#define TCIM_LITE_UNARY(name, version, meaning) \
  case k##name:                                 \
    return apply<k##name>(x, alpha, beta);
#include "graph/ops.def"
  }
  return x;
}

}  // namespace tcim_lite::cuda
