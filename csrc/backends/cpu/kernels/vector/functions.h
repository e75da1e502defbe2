// What the elementwise and unary ops compute, written once over V: the 16 lanes of simd.h (functions_simd.h) or one
// float (reference/functions.h), which include this behind V's own functions. Every operation rounds once to fp32, so
// both forms agree (docs/numerics.md section 11). Everything has internal linkage.
#pragma once

#include <cstdint>

#include "backends/cpu/kernel_table.h"
#include "backends/cpu/kernels/vector/functions_one.h"

namespace tcim_lite::cpu {
namespace {

// body(Number<op>) for every Op below `count`.
template <typename Op, int count, int op = 0, typename Body>
inline void for_ops(Body body) {
  if constexpr (op < count) {
    body(Number<Op(op)>{});
    for_ops<Op, count, op + 1>(body);
  }
}

// a where a is NaN.
template <typename V>
inline V larger(V a, V b) {
  return where_less(a, b, b, a);
}
template <typename V>
inline V smaller(V a, V b) {
  return where_less(b, a, b, a);
}
template <typename V>
inline V choose(V condition, V a, V b) {
  const V zero = like(a, 0.0f);
  const V below = where_less(condition, zero, a, b);
  return where_less(zero, condition, a, below);
}
template <typename V>
inline V sigmoid(V x) {
  const V one = like(x, 1.0f);
  return one / (one + exp(-x));
}
template <typename V>
inline V tanh(V x) {
  const V size = abs(x), one = like(x, 1.0f), zero = like(x, 0.0f);
  const V z = x * x;
  const V p =
      polynomial(z, -5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f);
  const V near = fma(x * z, p, x);
  const V large = one - like(x, 2.0f) / (exp(size + size) + one);
  const V far = where_less(x, zero, -large, large);
  return where_less(size, like(x, 0.625f), near, far);
}
template <typename V>
inline V erf(V x) {
  const V size = abs(x), one = like(x, 1.0f), zero = like(x, 0.0f);
  const V z = x * x;
  const V near =
      x * polynomial(z, 7.853861353153693e-5f, -8.010193625184903e-4f, 5.188327685732524e-3f, -2.685381193529856e-2f,
                     1.128358514861418e-1f, -3.761262582423300e-1f, 1.128379165726710e+0f);
  // Abramowitz and Stegun, 7.1.26: absolute error at most 1.5e-7.
  const V t = one / fma(like(x, 0.3275911f), size, one);
  const V q = polynomial(t, 1.061405429f, -1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f);
  const V large = one - (q * t) * exp(-z);
  const V far = where_less(x, zero, -large, large);
  return where_less(size, one, near, far);
}
template <typename V>
inline V floor(V x) {
  const V n = whole(x);
  return where_less(x, n, n - like(x, 1.0f), n);
}
// sin(x + quarter * pi / 2)
template <typename V>
inline V sine(V x, float quarter) {
  // pi / 2 in three parts. The first product leaves no error, the others lose less than the last place of the rest.
  V turns = whole(x * like(x, 0x1.45f306p-1f));
  V rest = fma(turns, like(x, -0x1.921fb6p+0f), x);
  rest = fma(turns, like(x, 0x1.777a5cp-25f), rest);
  rest = fma(turns, like(x, 0x1.ee59dap-50f), rest);
  const V size = abs(x), limit = like(x, kLargeAngle), zero = like(x, 0.0f), one = like(x, 1.0f);
  turns = where_less(size, limit, turns, each_lane(x, [](float lane) {
                       return __builtin_fabsf(lane) < kLargeAngle ? 0.0f : large_angle(lane).turns;
                     }));
  rest = where_less(size, limit, rest, each_lane(x, [](float lane) {
                      return __builtin_fabsf(lane) < kLargeAngle ? 0.0f : large_angle(lane).rest;
                    }));
  const V z = rest * rest;
  const V p = polynomial(z, -1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f);
  const V near_zero = fma(rest * z, p, rest);
  const V q = polynomial(z, 2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f);
  const V near_one = fma(z * z, q, fma(z, like(x, -0.5f), one));
  const V count = turns + like(x, quarter), half = floor(count * like(x, 0.5f));  // half turns
  const V value = where_less(zero, count - (half + half), near_one, near_zero);
  const V even = floor(half * like(x, 0.5f));
  return where_less(zero, half - (even + even), -value, value);
}
template <typename V>
inline V atan(V x) {
  const V size = abs(x), one = like(x, 1.0f), zero = like(x, 0.0f), third = like(x, 2.414213562373095f);
  // Above tan(3 pi / 8) pi / 2 - atan(1 / x), above tan(pi / 8) pi / 4 + atan((x - 1) / (x + 1)).
  const V middle = like(x, 0.4142135623730950f);
  const V reduced = where_less(third, size, -one / size, where_less(middle, size, (size - one) / (size + one), size));
  const V start =
      where_less(third, size, like(x, 0x1.921fb6p+0f), where_less(middle, size, like(x, 0x1.921fb6p-1f), zero));
  const V z = reduced * reduced;
  const V p = polynomial(z, 8.05374449538e-2f, -1.38776856032e-1f, 1.99777106478e-1f, -3.33329491539e-1f);
  const V value = start + fma(reduced * z, p, reduced);
  return where_less(x, zero, -value, value);
}
template <typename V>
inline V softplus(V x) {
  // max(x, 0) + log(1 + exp(-|x|))
  const V tail = each_lane(exp(-abs(x)), [](float e) {
    const float u = 1.0f + e;  // log(1 + e) is log(u), and what u lost of e
    return log_one(u) + (e - (u - 1.0f)) / u;
  });
  return larger(x, like(x, 0.0f)) + tail;
}

// One line for each ElementwiseOp.
template <ElementwiseOp op, typename V>
inline V apply(V a, V b) {
  if constexpr (op == kAdd) return a + b;
  if constexpr (op == kMul) return a * b;
  if constexpr (op == kSub) return a - b;
  if constexpr (op == kDiv) return a / b;
  if constexpr (op == kMax) return larger(a, b);
  if constexpr (op == kMin) return smaller(a, b);
  if constexpr (op == kPow) return each_lane(a, b, [](float x, float y) { return pow_one(x, y); });
  if constexpr (op == kPRelu) return where_less(a, like(a, 0.0f), a * b, a);
  if constexpr (op == kEqual) return each_lane(a, b, [](float x, float y) { return x == y ? 1.0f : 0.0f; });
  if constexpr (op == kLess) return where_less(a, b, like(a, 1.0f), like(a, 0.0f));
}

// One line for each UnaryOp.
template <UnaryOp op, typename V>
inline V apply(V x, float first, float second) {
  const V zero = like(x, 0.0f), one = like(x, 1.0f), alpha = like(x, first), beta = like(x, second);
  if constexpr (op == kRelu) return larger(x, zero);
  if constexpr (op == kLeakyRelu) return where_less(x, zero, alpha * x, x);
  if constexpr (op == kClip) return smaller(larger(x, alpha), beta);
  if constexpr (op == kSigmoid) return sigmoid(x);
  if constexpr (op == kHardSigmoid) return smaller(larger(fma(alpha, x, beta), zero), one);
  if constexpr (op == kHardSwish) return x * smaller(larger(fma(x, like(x, 1.0f / 6.0f), like(x, 0.5f)), zero), one);
  if constexpr (op == kSilu) return x / (one + exp(-x));
  if constexpr (op == kTanh) return tanh(x);
  if constexpr (op == kErf) return erf(x);
  if constexpr (op == kGelu) return like(x, 0.5f) * x * (one + erf(x * like(x, 0.70710678f)));
  if constexpr (op == kGeluTanh) {
    const V inner = like(x, 0.79788456f) * fma(like(x, 0.044715f) * x, x * x, x);
    return like(x, 0.5f) * x * (one + tanh(inner));
  }
  if constexpr (op == kElu) return where_less(x, zero, alpha * (exp(x) - one), beta * x);
  if constexpr (op == kExp) return exp(x);
  if constexpr (op == kLog) return each_lane(x, log_one);
  if constexpr (op == kSoftplus) return softplus(x);
  if constexpr (op == kSqrt) return sqrt(x);
  if constexpr (op == kReciprocal) return one / x;
  if constexpr (op == kNeg) return -x;
  if constexpr (op == kAbs) return abs(x);
  if constexpr (op == kFloor) return floor(x);
  if constexpr (op == kCeil) return -floor(-x);
  if constexpr (op == kRound) return whole(x);
  if constexpr (op == kSign) return where_less(x, zero, -one, where_less(zero, x, one, x));
  if constexpr (op == kSin) return sine(x, 0.0f);
  if constexpr (op == kCos) return sine(x, 1.0f);
  if constexpr (op == kAtan) return atan(x);
  if constexpr (op == kFakeQuantize) {
    const V code = smaller(larger(whole(x / alpha), beta), beta + like(x, kCodes - 1));
    return (code + zero) * alpha;  // no code is -0
  }
}

}  // namespace
}  // namespace tcim_lite::cpu
