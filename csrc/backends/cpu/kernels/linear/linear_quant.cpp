// Linear with quantised weights on NEON, with the dot product instructions or without; x86 has files of its own.
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
  static void unpack(const uint8_t* from, int quarter, int8x16_t* two) {
    if constexpr (kNibbles) {
      const uint8x16_t pairs = vld1q_u8(from + 16 * quarter);
      const uint8x16_t low = vandq_u8(pairs, vdupq_n_u8(15)), high = vshrq_n_u8(pairs, 4);
      if constexpr (kE2m1) {
        const int8x16_t codes = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
        two[0] = vqtbl1q_s8(codes, low);
        two[1] = vqtbl1q_s8(codes, high);
      } else {
        two[0] = vreinterpretq_s8_u8(low);
        two[1] = vreinterpretq_s8_u8(high);
      }
    } else {
      const uint8_t* at = from + 16 * quarter;
      two[0] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(at), vdupq_n_u8(0x80)));
      two[1] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(at + 64), vdupq_n_u8(0x80)));
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

// Dots of R rows with Q quarters of a block, from `first` on, in one group: those of the unpacked values, and `start`
// of each row.
template <int R, int Q>
using Dots = int32x4_t[R][Q];

#if defined(__ARM_FEATURE_DOTPROD)

constexpr int kTileRows = 5;  // 5 x 4 sums, 5 activations, weights: fits 32 registers
template <int R>
constexpr int kQuarters = 4;

// Few rows keep even and odd runs apart: sdot takes four cycles.
template <typename Format, int R, int Q>
__attribute__((always_inline)) inline void dots(const uint8_t* weights, const int8_t* codes, int64_t inputs, int first,
                                                const int32x4_t (&starts)[R], Dots<R, Q>& dot) {
  constexpr int kSets = R <= 2 ? 2 : 1;
  Dots<R, Q> sums[kSets];
  for (int r = 0; r < R; ++r) {
    for (int q = 0; q < Q; ++q) {
      sums[0][r][q] = starts[r];
      if constexpr (kSets == 2) sums[1][r][q] = vdupq_n_s32(0);
    }
  }
  for (int sixteen = 0; sixteen < Format::kInputs / 16; ++sixteen) {
    int8x16_t a[R];
    for (int r = 0; r < R; ++r) a[r] = vld1q_s8(codes + r * inputs + 16 * sixteen);
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) {
      int8x16_t runs[4];
      for (int eight = 0; eight < 2; ++eight)
        Format::unpack(weights + Format::kStepBytes * (2 * sixteen + eight), first + q, runs + 2 * eight);
#pragma GCC unroll 5
      for (int r = 0; r < R; ++r) {
        int32x4_t& even = sums[0][r][q];
        int32x4_t& odd = sums[kSets - 1][r][q];
        even = vdotq_laneq_s32(even, runs[0], a[r], 0);
        odd = vdotq_laneq_s32(odd, runs[1], a[r], 1);
        even = vdotq_laneq_s32(even, runs[2], a[r], 2);
        odd = vdotq_laneq_s32(odd, runs[3], a[r], 3);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int q = 0; q < Q; ++q) dot[r][q] = kSets == 2 ? vaddq_s32(sums[0][r][q], sums[1][r][q]) : sums[0][r][q];
  }
}

#else

constexpr int kTileRows = 4;  // 16 sums, activations and weights: fits 32 registers
template <int R>
constexpr int kQuarters = R <= 2 ? 4 : 2;

// Of codes in nibbles: each 16-bit lane sums the products of one of the four places in a run. The 16 products of a
// group fit, so widening to 32 bits happens once per group.
template <bool Nibbles>
struct SumsOf {
  int16x8_t low = vdupq_n_s16(0), high = vdupq_n_s16(0);  // of two outputs, four places each

  void add(const int8x16_t (&stored)[2], const int8x16_t (&a)[2]) {
    for (int i = 0; i < 2; ++i) {
      low = vmlal_s8(low, vget_low_s8(stored[i]), vget_low_s8(a[i]));
      high = vmlal_high_s8(high, stored[i], a[i]);
    }
  }
  int32x4_t dot() const { return vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)); }
};

// Of codes in bytes. The negative of two products fits a 16-bit lane; their sum would not where all four codes are
// -128.
template <>
struct SumsOf<false> {
  int32x4_t low = vdupq_n_s32(0), high = vdupq_n_s32(0);  // negative, of two outputs: places 0 and 1, 2 and 3

  void add(const int8x16_t (&stored)[2], const int8x16_t (&a)[2]) {
    static_assert(-2 * 128 * 128 >= -32768 && 2 * 128 * 127 <= 32767);
    const int16x8_t zero = vdupq_n_s16(0);
    low = vpadalq_s16(low, vmlsl_s8(vmlsl_s8(zero, vget_low_s8(stored[0]), vget_low_s8(a[0])), vget_low_s8(stored[1]),
                                    vget_low_s8(a[1])));
    high = vpadalq_s16(high, vmlsl_high_s8(vmlsl_high_s8(zero, stored[0], a[0]), stored[1], a[1]));
  }
  int32x4_t dot() const { return vnegq_s32(vpaddq_s32(low, high)); }
};

// Four activations, repeated.
inline int8x16_t broadcast4(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof(four));
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

template <typename Format, int R, int Q>
void dots(const uint8_t* weights, const int8_t* codes, int64_t inputs, int first, const int32x4_t (&starts)[R],
          Dots<R, Q>& dot) {
  static_assert(!Format::kNibbles || Format::kInputs / 4 * 15 * 128 <= 32767);
  SumsOf<Format::kNibbles> sums[R][Q];
#pragma GCC unroll 2
  for (int step = 0; step < int(Format::kInputs / 8); ++step) {
    int8x16_t a[R][2];
    for (int r = 0; r < R; ++r) {
      for (int odd = 0; odd < 2; ++odd) a[r][odd] = broadcast4(codes + r * inputs + 8 * step + 4 * odd);
    }
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) {
      int8x16_t stored[2];
      Format::unpack(weights + Format::kStepBytes * step, first + q, stored);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sums[r][q].add(stored, a[r]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int q = 0; q < Q; ++q) dot[r][q] = vaddq_s32(sums[r][q].dot(), starts[r]);
  }
}

#endif

// R rows of one block; fp32 sums in args.acc.
template <typename Format, int R>
__attribute__((noinline)) void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
  constexpr int Q = kQuarters<R>;
  const Tile t(args, row, block);
  const int64_t groups = args.groups * Format::kParts;
  for (int r = 0; r < R; ++r) {
    for (int q = 0; q < 4; ++q) vst1q_f32(t.acc + r * t.acc_stride + 4 * q, vdupq_n_f32(0.0f));
  }
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t part = group / Format::kParts;  // of the activations
    const uint8_t* weights = t.weights + Format::codes_at(group);
    int32x4_t starts[R];
    for (int r = 0; r < R; ++r) starts[r] = vdupq_n_s32(-Format::kExcess * t.sums[r * t.stride + part]);
    for (int first = 0; first < 4; first += Q) {
      Dots<R, Q> dot;
      dots<Format, R, Q>(weights, t.codes + group * Format::kInputs, t.inputs, first, starts, dot);
      for (int q = 0; q < Q; ++q) {
        const float32x4_t weight_scale = Format::scales(t.weights + Format::scales_at(groups, group), first + q);
#pragma GCC unroll 5
        for (int r = 0; r < R; ++r) {
          float* sum = t.acc + r * t.acc_stride + 4 * (first + q);
          const float32x4_t scale = vmulq_n_f32(weight_scale, t.scales[r * t.stride + part]);
          vst1q_f32(sum, vfmaq_f32(vld1q_f32(sum), vcvtq_f32_s32(dot[r][q]), scale));
        }
      }
    }
  }
}

template <typename Format>
void linear(const LinearQuantArgs& args) {
  run_tiles<kTileRows>(args,
                       [&](auto count, int64_t row, int64_t block) { tile<Format, count.value>(args, row, block); });
}

}  // namespace

void TCIM_LITE_USE(linear_quant)(KernelTable& table) {
  enter_quantised(table, [](auto format) { return linear<NeonFormat<format.kValue>>; });
}

}  // namespace tcim_lite::cpu
