// T, the element of tensors between ops, and the ops that are lines of ops.def and nothing more.
#pragma once

#include <cstdint>

namespace tcim_lite {

// kI32 counts in the ops that compute with integers. What only moves elements takes them for kF32, as wide.
enum Elem : int { kF16 = 0, kF32 = 1, kI32 = 2 };
constexpr int kElems = 3;

// Ops of two operands, y[i] = op(a[i], b[i]): kAdd and whatever else ops.def lists as elementwise.
enum ElementwiseOp : int {
#define TCIM_LITE_ELEMENTWISE(name, version, meaning) k##name,
#include "graph/ops.def"
  kElementwiseOps
};

// Ops of one operand, y[i] = op(x[i]).
enum UnaryOp : int {
#define TCIM_LITE_UNARY(name, version, meaning) k##name,
#include "graph/ops.def"
  kUnaryOps
};

// The codes that kFakeQuantize tells apart, of 8 bits.
constexpr float kCodes = 256;

// Ops that make one element of a row.
enum ReduceOp : int {
#define TCIM_LITE_REDUCE(name, version, meaning) k##name,
#include "graph/ops.def"
  kReduceOps
};

// The ops that compute with integers as well.
constexpr bool has_integers(ElementwiseOp op) { return op != kPow && op != kPRelu; }
constexpr bool has_integers(ReduceOp op) {
  return op == kReduceSum || op == kReduceMax || op == kReduceMin || op == kReduceProd;
}
// What takes one integer more into the result of a reduction.
constexpr ElementwiseOp step_of_integers(ReduceOp op) {
  return op == kReduceMax ? kMax : op == kReduceMin ? kMin : op == kReduceProd ? kMul : kAdd;
}

// A number without its fraction: the end of int32 where it is beyond, 0 for NaN.
constexpr int32_t whole_part(float x) {
  if (x != x) return 0;
  if (x >= 0x1p31f) return INT32_MAX;
  return x < -0x1p31f ? INT32_MIN : int32_t(x);
}

// A value of a mask that hides a cache row from attention: the lowest of float16, or less.
constexpr float kHidden = -65504.0f;

constexpr int64_t elem_bytes(Elem elem) { return elem == kF16 ? 2 : 4; }

}  // namespace tcim_lite
