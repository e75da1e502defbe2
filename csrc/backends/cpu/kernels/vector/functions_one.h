// What functions.h computes lane by lane, of one float: logarithms, powers and the angles of large numbers. The
// compiler makes fmas of __builtin_fmaf where there are some. Everything has internal linkage.
#pragma once

#include <cstdint>

namespace tcim_lite::cpu {
namespace {

inline uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline float like(float, float value) { return value; }
inline float sqrt(float x) { return __builtin_sqrtf(x); }
__attribute__((always_inline)) inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// A polynomial of x, its highest factor first, over one float or the vectors that include this.
template <typename V, typename... Factors>
__attribute__((always_inline)) inline V polynomial(V x, float highest, Factors... others) {
  V value = like(x, highest);
  ((value = fma(value, x, like(x, others))), ...);
  return value;
}
// exp(x) is 2^n times this of the rest, x - n * log 2 (docs/numerics.md section 5).
template <typename V>
__attribute__((always_inline)) inline V exp_of_rest(V rest) {
  return polynomial(rest, 0x1.6a23cep-10f, 0x1.123a20p-7f, 0x1.5558f2p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f, 1.0f, 1.0f);
}

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
  const float p = polynomial(z, 0.24279078841f, 0.28498786688f, 0.40000972152f, 0.66666662693f), half = 0.5f * f * f;
  return {float(exponent + shift), f, __builtin_fmaf(s, __builtin_fmaf(z, p, half), -half)};
}
constexpr float kLog2High = 6.9313812256e-01f, kLog2Low = 9.0580006145e-06f;  // log 2 in two parts
inline float log_one(float x) {
  if (!(x > 0)) return x == 0 ? -__builtin_inff() : __builtin_nanf("");
  if (x > 3.4028234e38f) return x;
  const LogParts parts = log_parts(x);
  return __builtin_fmaf(parts.n, kLog2High, parts.high + __builtin_fmaf(parts.n, kLog2Low, parts.low));
}
// exp of x in [-87.33654, 88], where it is a normal number: docs/numerics.md section 5, from step 2 on.
inline float exp_one(float x) {
  const float shifted = __builtin_fmaf(x, 0x1.715476p+0f, 0x1.8p+23f), n = shifted - 0x1.8p+23f;
  float r = __builtin_fmaf(n, -0x1.62e430p-1f, x);
  r = __builtin_fmaf(n, 0x1.05c610p-29f, r);
  return exp_of_rest(r) * float_of((bits_of(shifted) << 23) + 0x3f800000u);
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

}  // namespace
}  // namespace tcim_lite::cpu
