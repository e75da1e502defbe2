// The vector operations of simd.h on NEON: a Vec is four registers. Only simd.h includes this.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace tcim_lite::cpu {
namespace {

constexpr int kSums = 4;  // Vecs that fit the registers as sums: 16 of 32, as many as four units of four cycles need

struct Vec {
  float32x4_t v[4];
};
struct Ints {
  int32x4_t v[4];
};

struct Full {};
struct Tail {
  explicit Tail(int64_t tail) : count(tail) {}
  int64_t count;  // 1 to 15
};

// {f(0), f(1), f(2), f(3)}
template <typename F>
inline Vec each(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}
template <typename F>
inline Ints each_int(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}

// The same of one operand, and of two.
#define TCIM_LITE_EACH(To, name, From, of) \
  inline To name(From a) { return {{of(a.v[0]), of(a.v[1]), of(a.v[2]), of(a.v[3])}}; }
#define TCIM_LITE_PAIRS(V, name, of) \
  inline V name(V a, V b) { return {{of(a.v[0], b.v[0]), of(a.v[1], b.v[1]), of(a.v[2], b.v[2]), of(a.v[3], b.v[3])}}; }

inline Vec broadcast(float value) {
  return each([&](int) { return vdupq_n_f32(value); });
}
inline Ints broadcast(int32_t value) {
  return each_int([&](int) { return vdupq_n_s32(value); });
}

inline Vec load(const float* p, Full = {}) {
  return each([&](int i) { return vld1q_f32(p + 4 * i); });
}
inline Vec load(const uint16_t* p, Full = {}) {
  return each([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
}
template <typename T>
inline Vec load(const T* p, Tail tail) {
  T values[16] = {};
  for (int64_t i = 0; i < tail.count; ++i) values[i] = p[i];
  return load(values);
}

TCIM_LITE_PAIRS(Vec, operator+, vaddq_f32)
TCIM_LITE_PAIRS(Vec, operator-, vsubq_f32)
TCIM_LITE_PAIRS(Vec, operator*, vmulq_f32)
TCIM_LITE_PAIRS(Vec, operator/, vdivq_f32)
TCIM_LITE_EACH(Vec, operator-, Vec, vnegq_f32)
inline Vec fma(Vec a, Vec b, Vec c) {
  return each([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
TCIM_LITE_EACH(Vec, abs, Vec, vabsq_f32)
TCIM_LITE_PAIRS(Vec, min, vminnmq_f32)
TCIM_LITE_PAIRS(Vec, max, vmaxnmq_f32)
// vmaxq and vminq give NaN when one operand is.
inline Vec clamp(Vec a, Vec low, Vec high) {
  return each([&](int i) { return vmaxq_f32(low.v[i], vminq_f32(high.v[i], a.v[i])); });
}
inline Vec zero_where_below(Vec a, Vec x, Vec limit) {
  return each([&](int i) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a.v[i]), vcltq_f32(x.v[i], limit.v[i])));
  });
}
inline Vec where_less(Vec x, Vec limit, Vec a, Vec b) {
  return each([&](int i) { return vbslq_f32(vcltq_f32(x.v[i], limit.v[i]), a.v[i], b.v[i]); });
}
TCIM_LITE_EACH(Vec, whole, Vec, vrndnq_f32)
TCIM_LITE_EACH(Vec, sqrt, Vec, vsqrtq_f32)
inline Vec first_lanes(Vec a, Vec, Full) { return a; }
inline Vec first_lanes(Vec a, Vec others, Tail tail) {
  const int32_t order[4] = {0, 1, 2, 3};
  return each([&](int i) {
    const int32x4_t lanes = vaddq_s32(vld1q_s32(order), vdupq_n_s32(4 * i));
    return vbslq_f32(vcltq_s32(lanes, vdupq_n_s32(int32_t(tail.count))), a.v[i], others.v[i]);
  });
}

inline Ints load(const int32_t* p) {
  return each_int([&](int i) { return vld1q_s32(p + 4 * i); });
}
inline void store(int32_t* p, Ints a) {
  for (int i = 0; i < 4; ++i) vst1q_s32(p + 4 * i, a.v[i]);
}
TCIM_LITE_PAIRS(Ints, operator-, vsubq_s32)
TCIM_LITE_PAIRS(Ints, min, vminq_s32)
TCIM_LITE_PAIRS(Ints, operator+, vaddq_s32)
TCIM_LITE_PAIRS(Ints, max, vmaxq_s32)
template <int count>
inline Ints shift_left(Ints a) {
  return each_int([&](int i) { return vshlq_n_s32(a.v[i], count); });
}
TCIM_LITE_EACH(Ints, bits, Vec, vreinterpretq_s32_f32)
TCIM_LITE_EACH(Vec, from_bits, Ints, vreinterpretq_f32_s32)
TCIM_LITE_EACH(Vec, to_floats, Ints, vcvtq_f32_s32)
inline Ints powers(Ints a) {
  return each_int([&](int i) { return vandq_s32(a.v[i], vdupq_n_s32(0x7f800000)); });
}
inline Ints low_bytes(Ints a, Ints b, Ints c, Ints d) {
  return each_int([&](int i) {
    int32x4_t bytes = vsliq_n_s32(a.v[i], b.v[i], 8);
    bytes = vsliq_n_s32(bytes, c.v[i], 16);
    return vsliq_n_s32(bytes, d.v[i], 24);
  });
}
TCIM_LITE_EACH(Ints, nearest, Vec, vcvtnq_s32_f32)

inline float16x4_t to_half(float32x4_t limited) { return vcvt_f16_f32(limited); }
inline Vec limit_to_half(Vec a) { return clamp(a, broadcast(-65504.0f), broadcast(65504.0f)); }
inline Vec round_to_any_half(Vec a) {
  return each([&](int i) { return vcvt_f32_f16(to_half(a.v[i])); });
}
inline Vec round_to_half(Vec a) { return round_to_any_half(limit_to_half(a)); }

inline void store(float* p, Vec a, Full = {}) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
}
inline void store(uint16_t* p, Vec a, Full = {}) {
  const Vec limited = limit_to_half(a);
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(to_half(limited.v[i])));
}
template <typename T>
inline void store(T* p, Vec a, Tail tail) {
  T values[16];
  store(values, a);
  for (int64_t i = 0; i < tail.count; ++i) p[i] = values[i];
}
inline void store_bytes(int8_t* p, Ints a) {
  const int16x8_t low = vcombine_s16(vmovn_s32(a.v[0]), vmovn_s32(a.v[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(a.v[2]), vmovn_s32(a.v[3]));
  vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

inline float first_lane(Vec a) { return vgetq_lane_f32(a.v[0], 0); }
inline float32x4_t tree_sum_of_four(Vec a) { return vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3])); }
inline float tree_sum(Vec a) {
  const float32x4_t four = tree_sum_of_four(a);
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
inline bool any_nan(Vec a) {
  uint32x4_t numbers = vdupq_n_u32(~0u);
  for (int i = 0; i < 4; ++i) numbers = vandq_u32(numbers, vceqq_f32(a.v[i], a.v[i]));
  return vminvq_u32(numbers) == 0;
}
inline float largest(Vec a) {
  return vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(a.v[0], a.v[1]), vmaxnmq_f32(a.v[2], a.v[3])));
}

inline void tree_sums(const Vec (&sums)[kSums], float* out) {
  float32x4_t two[2];
  for (int i = 0; i < 2; ++i) {
    const float64x2_t a = vreinterpretq_f64_f32(tree_sum_of_four(sums[2 * i]));
    const float64x2_t b = vreinterpretq_f64_f32(tree_sum_of_four(sums[2 * i + 1]));
    two[i] = vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(a, b)), vreinterpretq_f32_f64(vzip2q_f64(a, b)));
  }
  vst1q_f32(out, vpaddq_f32(two[0], two[1]));
}
inline void all_largest(const Vec (&values)[kSums], float* out) {
  for (int i = 0; i < kSums; ++i) out[i] = largest(values[i]);
}

// Four rows of four, of vectors `of` of rows [first, first + 4).
inline void transpose(const Vec (&rows)[16], int first, int of, float32x4_t (&out)[4]) {
  const float32x4_t a = rows[first].v[of], b = rows[first + 1].v[of];
  const float32x4_t c = rows[first + 2].v[of], d = rows[first + 3].v[of];
  const float64x2_t ab_even = vreinterpretq_f64_f32(vtrn1q_f32(a, b)), ab_odd = vreinterpretq_f64_f32(vtrn2q_f32(a, b));
  const float64x2_t cd_even = vreinterpretq_f64_f32(vtrn1q_f32(c, d)), cd_odd = vreinterpretq_f64_f32(vtrn2q_f32(c, d));
  out[0] = vreinterpretq_f32_f64(vtrn1q_f64(ab_even, cd_even));
  out[1] = vreinterpretq_f32_f64(vtrn1q_f64(ab_odd, cd_odd));
  out[2] = vreinterpretq_f32_f64(vtrn2q_f64(ab_even, cd_even));
  out[3] = vreinterpretq_f32_f64(vtrn2q_f64(ab_odd, cd_odd));
}
inline void transpose(Vec (&rows)[16]) {
  Vec turned[16];
  for (int i = 0; i < 16; i += 4) {
    for (int of = 0; of < 4; ++of) {
      float32x4_t four[4];
      transpose(rows, i, of, four);
      for (int j = 0; j < 4; ++j) turned[4 * of + j].v[i / 4] = four[j];
    }
  }
  for (int i = 0; i < 16; ++i) rows[i] = turned[i];
}

// Fetches ahead were not measured.
inline void prefetch_near(const void*) {}
inline void prefetch_far(const void*) {}

inline Vec moved_up(Vec before, Vec a) {
  return each([&](int i) { return vextq_f32(i == 0 ? before.v[3] : a.v[i - 1], a.v[i], 3); });
}
inline Vec moved_down(Vec a, Vec behind) {
  return each([&](int i) { return vextq_f32(a.v[i], i == 3 ? behind.v[0] : a.v[i + 1], 1); });
}
inline void split(Vec a, Vec b, Vec& even, Vec& odd) {
  for (int i = 0; i < 4; ++i) {
    const float32x4_t first = (i < 2 ? a : b).v[i % 2 * 2], second = (i < 2 ? a : b).v[i % 2 * 2 + 1];
    even.v[i] = vuzp1q_f32(first, second);
    odd.v[i] = vuzp2q_f32(first, second);
  }
}

}  // namespace
}  // namespace tcim_lite::cpu
