// What the elementwise and unary ops compute, written once over V: the 16 lanes of simd.h (functions_simd.h) or one
// float (functions_ref.h), which include this behind V's own functions. Every operation rounds once to fp32, so both
// forms agree (docs/numerics.md section 11). Everything has internal linkage.
#pragma once

#include <cstdint>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

// body(OpNumber<op>) for every op below `count`.
template <int op>
struct OpNumber {
  static constexpr int value = op;
};
template <int count, int op = 0, typename Body>
inline void for_ops(Body body) {
  if constexpr (op < count) {
    body(OpNumber<op>{});
    for_ops<count, op + 1>(body);
  }
}

// --- of one float; the compiler makes fmas of __builtin_fmaf where there are some ---

inline uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline float like(float, float value) { return value; }
inline float sqrt(float x) { return __builtin_sqrtf(x); }

// log(x) = n * log 2 + high + low, low the smaller: x = 2^n * (1 + high), 1 + high in [sqrt(1/2), sqrt 2), and low is
// log(1 + high) - high. The polynomial is that of fdlibm's logf.
struct LogParts {
  float n, high, low;
};
inline LogParts log_parts(float x) {
  int32_t shift = 0;
  if (x < 0x1p-126f) {
    x *= 0x1p+25f;
    shift = -25;
  }
  const int32_t exponent = int32_t(bits_of(x) - 0x3f3504f3u) >> 23;  // of sqrt(1/2) is 0
  const float m = float_of(bits_of(x) - (uint32_t(exponent) << 23));
  const float f = m - 1.0f, s = f / (2.0f + f), z = s * s;
  float p = 0.24279078841f;
  p = __builtin_fmaf(p, z, 0.28498786688f);
  p = __builtin_fmaf(p, z, 0.40000972152f);
  p = __builtin_fmaf(p, z, 0.66666662693f);
  const float half = 0.5f * f * f;
  return {float(exponent + shift), f, __builtin_fmaf(s, __builtin_fmaf(z, p, half), -half)};
}
constexpr float kLog2High = 6.9313812256e-01f, kLog2Low = 9.0580006145e-06f;  // log 2 in two parts
inline float log_one(float x) {
  if (!(x > 0)) return x == 0 ? -__builtin_inff() : __builtin_nanf("");
  if (x > 3.4028234e38f) return x;
  const LogParts parts = log_parts(x);
  return __builtin_fmaf(parts.n, kLog2High, parts.high + __builtin_fmaf(parts.n, kLog2Low, parts.low));
}
// exp for one float, as simd.h and exp_ref have it but without the clamp at the ends: |x| <= 87.
inline float exp_one(float x) {
  const float shifted = __builtin_fmaf(x, 0x1.715476p+0f, 0x1.8p+23f), n = shifted - 0x1.8p+23f;
  float r = __builtin_fmaf(n, -0x1.62e430p-1f, x);
  r = __builtin_fmaf(n, 0x1.05c610p-29f, r);
  float p = 0x1.6a23cep-10f;
  p = __builtin_fmaf(p, r, 0x1.123a20p-7f);
  p = __builtin_fmaf(p, r, 0x1.5558f2p-5f);
  p = __builtin_fmaf(p, r, 0x1.555492p-3f);
  p = __builtin_fmaf(p, r, 0x1.fffffcp-2f);
  p = __builtin_fmaf(p, r, 1.0f);
  p = __builtin_fmaf(p, r, 1.0f);
  return p * float_of((bits_of(shifted) << 23) + 0x3f800000u);
}
template <typename V>
inline V power_by_squaring(V a, int32_t n) {
  V result = like(a, 1.0f);
  for (; n > 0; n >>= 1) {
    if ((n & 1) != 0) result = result * a;
    a = a * a;
  }
  return result;
}
// Powers that need no logarithm.
inline bool is_quick_power(float b) {
  return b == 0.5f || (__builtin_rintf(b) == b && b != 0 && __builtin_fabsf(b) <= 64.0f);
}
template <typename V>
inline V quick_power(V a, float b) {
  const V one = like(a, 1.0f), zero = like(a, 0.0f);
  if (b == 0.5f) return sqrt(a) + zero;  // of -0: 0
  const V result = power_by_squaring(a, int32_t(__builtin_fabsf(b)));
  return b < 0 ? one / result : result;
}
// Small whole powers by squaring, others as exp(b * log a) with log a as a sum of two floats; C's rules for signs and
// special values.
inline float pow_one(float a, float b) {
  if (b == 0 || a == 1) return 1.0f;
  if (a != a || b != b) return a + b;
  const float nearest = __builtin_rintf(b);
  const bool whole_power = nearest == b, odd = whole_power && __builtin_fabsf(b) < 0x1p+24f && (int32_t(b) & 1) != 0;
  if (is_quick_power(b)) return quick_power(a, b);
  const float size = __builtin_fabsf(a);
  if (a < 0 && !whole_power) return __builtin_nanf("");
  float result;
  if (size == 0 || size > 3.4028234e38f) {
    result = (size == 0) == (b < 0) ? __builtin_inff() : 0.0f;
  } else {
    const LogParts parts = log_parts(size);
    // The logarithm as a sum of two floats, so that its error is not multiplied by b.
    const float high = parts.n * kLog2High;  // exact: 16 bits and a small whole number
    const float first = high + parts.high, lost = (high - first) + parts.high;
    const float low = __builtin_fmaf(parts.n, kLog2Low, parts.low) + lost;
    const float sum = first + low, rest = (first - sum) + low;
    const float product = b * sum, error = __builtin_fmaf(b, sum, -product) + b * rest;
    result = product > 89.0f ? __builtin_inff() : 0.0f;
    if (product <= 89.0f && product >= -87.0f) {
      const float half = exp_one(0.5f * product);
      result = half * half;
      result = __builtin_fmaf(result, error, result);
    } else if (product < -87.0f && product >= -104.0f) {
      const float part = exp_one(0.5f * product);
      result = part * part;
    }
  }
  return a < 0 && odd ? -result : result;
}
// Of |x| >= kLargeAngle: x = (turns + 4 m) * pi / 2 + rest, with a whole m and |rest| at most pi / 4. kTwoByPi has as
// many bits of 2 / pi as the largest float needs (Payne and Hanek).
constexpr float kLargeAngle = 0x1p+17f;
constexpr uint32_t kTwoByPi[] = {0,           0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
                                 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu};
struct LargeAngle {
  float turns, rest;
};
inline LargeAngle large_angle(float x) {
  const int32_t power = int32_t(bits_of(x) >> 23 & 0xff) - 150;  // |x| = mantissa * 2^power, power from -6 on
  if (power > 104) return {0.0f, __builtin_nanf("")};
  const uint64_t mantissa = (bits_of(x) & 0x7fffffu) | 0x800000u;
  // The 96 bits of 2 / pi from the one that mantissa * 2^power makes 2: those before it add whole turns of 4.
  const uint32_t* word = kTwoByPi + (power + 30) / 32;
  const int32_t shift = (power + 30) % 32;
  const uint64_t first = uint64_t(word[0]) << 32 | word[1], second = uint64_t(word[2]) << 32 | word[3];
  const uint64_t high = shift == 0 ? first : first << shift | second >> (64 - shift);
  const uint64_t low = second << shift >> 32;
  const uint64_t turns = mantissa * high + (mantissa * low >> 32);  // in units of 2^-62, modulo 4
  const uint64_t quarter = (turns + (uint64_t{1} << 61)) >> 62;
  const double rest = double(int64_t(turns - (quarter << 62))) * 0x1.921fb54442d18p-62;  // pi / 2 of 2^62
  const float sign = x < 0 ? -1.0f : 1.0f;
  return {sign * float(quarter), sign * float(rest)};
}

// --- over V ---

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
  V p = like(x, -5.70498872745e-3f);
  p = fma(p, z, like(x, 2.06390887954e-2f));
  p = fma(p, z, like(x, -5.37397155531e-2f));
  p = fma(p, z, like(x, 1.33314422036e-1f));
  p = fma(p, z, like(x, -3.33332819422e-1f));
  const V near = fma(x * z, p, x);
  const V large = one - like(x, 2.0f) / (exp(size + size) + one);
  const V far = where_less(x, zero, -large, large);
  return where_less(size, like(x, 0.625f), near, far);
}
template <typename V>
inline V erf(V x) {
  const V size = abs(x), one = like(x, 1.0f), zero = like(x, 0.0f);
  const V z = x * x;
  V p = like(x, 7.853861353153693e-5f);
  p = fma(p, z, like(x, -8.010193625184903e-4f));
  p = fma(p, z, like(x, 5.188327685732524e-3f));
  p = fma(p, z, like(x, -2.685381193529856e-2f));
  p = fma(p, z, like(x, 1.128358514861418e-1f));
  p = fma(p, z, like(x, -3.761262582423300e-1f));
  p = fma(p, z, like(x, 1.128379165726710e+0f));
  const V near = x * p;
  // Abramowitz and Stegun, 7.1.26: absolute error at most 1.5e-7.
  const V t = one / fma(like(x, 0.3275911f), size, one);
  V q = like(x, 1.061405429f);
  q = fma(q, t, like(x, -1.453152027f));
  q = fma(q, t, like(x, 1.421413741f));
  q = fma(q, t, like(x, -0.284496736f));
  q = fma(q, t, like(x, 0.254829592f));
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
  V p = like(x, -1.9515295891e-4f);
  p = fma(p, z, like(x, 8.3321608736e-3f));
  p = fma(p, z, like(x, -1.6666654611e-1f));
  const V near_zero = fma(rest * z, p, rest);
  V q = like(x, 2.443315711809948e-5f);
  q = fma(q, z, like(x, -1.388731625493765e-3f));
  q = fma(q, z, like(x, 4.166664568298827e-2f));
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
  V p = like(x, 8.05374449538e-2f);
  p = fma(p, z, like(x, -1.38776856032e-1f));
  p = fma(p, z, like(x, 1.99777106478e-1f));
  p = fma(p, z, like(x, -3.33329491539e-1f));
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
}

}  // namespace
}  // namespace tcim_lite::cpu
