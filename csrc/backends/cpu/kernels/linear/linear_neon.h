// What the NEON kernels of quantised Linears share. Everything has internal linkage.
#pragma once

#include <arm_neon.h>

#include "backends/cpu/kernels/linear/linear_tile.h"

namespace tcim_lite::cpu {
namespace {

// What NEON registers take from a packed format, for four outputs: a quarter of a block.
template <WeightFormat F>
struct NeonFormat : Packed<F> {
  using Packed<F>::kE2m1, Packed<F>::kHalfScales, Packed<F>::kNibbles;
  // The values to multiply are this much larger than the codes. Stored bytes become signed by flipping their top bit.
  static constexpr int32_t kExcess = kNibbles ? Packed<F>::kLayout.code_offset : 0;

  // The values of inputs 0..3 and 4..7 of eight.
  static void unpack(const uint8_t* from, int quarter, int8x16_t& first, int8x16_t& second) {
    if constexpr (kNibbles) {
      const uint8x16_t pairs = vld1q_u8(from + 16 * quarter);
      const uint8x16_t low = vandq_u8(pairs, vdupq_n_u8(15)), high = vshrq_n_u8(pairs, 4);
      if constexpr (kE2m1) {
        const int8x16_t codes = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
        first = vqtbl1q_s8(codes, low);
        second = vqtbl1q_s8(codes, high);
      } else {
        first = vreinterpretq_s8_u8(low);
        second = vreinterpretq_s8_u8(high);
      }
    } else {
      const uint8_t* at = from + 16 * quarter;
      first = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(at), vdupq_n_u8(0x80)));
      second = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(at + 64), vdupq_n_u8(0x80)));
    }
  }

  static float32x4_t scales(const uint8_t* at, int quarter) {
    if constexpr (kHalfScales) {
      const auto* halves = reinterpret_cast<const uint16_t*>(at) + 4 * quarter;
      return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(halves)));
    } else {  // 2^e
      uint32_t four;
      __builtin_memcpy(&four, at + 4 * quarter, sizeof(four));
      const int16x8_t exponents = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)));
      const int32x4_t biased = vaddq_s32(vmovl_s16(vget_low_s16(exponents)), vdupq_n_s32(127));
      return vreinterpretq_f32_s32(vshlq_n_s32(biased, 23));
    }
  }
};

template <int R>
void clear(const Tile& t) {
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 4; ++i) vst1q_f32(t.acc + r * t.acc_stride + 4 * i, vdupq_n_f32(0.0f));
  }
}

// acc = fma(dot, weight scale * row scale, acc) of a quarter; `part` counts groups of activations.
inline void accumulate(const Tile& t, int r, int quarter, int64_t part, int32x4_t dot, float32x4_t weight_scale) {
  float* sum = t.acc + r * t.acc_stride + 4 * quarter;
  const float32x4_t scale = vmulq_n_f32(weight_scale, t.scales[r * t.stride + part]);
  vst1q_f32(sum, vfmaq_f32(vld1q_f32(sum), vcvtq_f32_s32(dot), scale));
}

}  // namespace
}  // namespace tcim_lite::cpu
