// Linear with quantised weights for CPUs without the dot product instructions.
#include "backends/cpu/kernels/linear/linear_neon.h"

namespace tcim_lite::cpu {
namespace {

constexpr int kTileRows = 4;  // 16 sums, activations and weights: fits 32 registers

// Four activations, repeated.
int8x16_t broadcast4(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof(four));
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

// dot[row][quarter] of one group, of Q quarters from `first` on, of codes in nibbles. Each 16-bit lane sums the
// products of one of the four places in a run; the 16 products of a group fit, so widening to 32 bits happens once per
// group.
template <typename Format, int R, int Q>
void dots_of_nibbles(const uint8_t* weights, const int8_t* codes, int64_t inputs, int first, int32x4_t (&dot)[R][Q]) {
  static_assert(Format::kInputs / 4 * 15 * 128 <= 32767);
  int16x8_t products[R][Q][2];  // of two outputs, four places each
  for (int r = 0; r < R; ++r) {
    for (int q = 0; q < Q; ++q) products[r][q][0] = products[r][q][1] = vdupq_n_s16(0);
  }
#pragma GCC unroll 2
  for (int step = 0; step < int(Format::kInputs / 8); ++step) {
    int8x16_t a[R][2];
    for (int r = 0; r < R; ++r) {
      for (int nibble = 0; nibble < 2; ++nibble) a[r][nibble] = broadcast4(codes + r * inputs + 8 * step + 4 * nibble);
    }
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) {
      int8x16_t stored[2];
      Format::unpack(weights + Format::kStepBytes * step, first + q, stored[0], stored[1]);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        int16x8_t* sums = products[r][q];
        for (int nibble = 0; nibble < 2; ++nibble) {
          sums[0] = vmlal_s8(sums[0], vget_low_s8(stored[nibble]), vget_low_s8(a[r][nibble]));
          sums[1] = vmlal_high_s8(sums[1], stored[nibble], a[r][nibble]);
        }
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int q = 0; q < Q; ++q) dot[r][q] = vpaddq_s32(vpaddlq_s16(products[r][q][0]), vpaddlq_s16(products[r][q][1]));
  }
}

// The same of codes in bytes. The negative of two products fits a 16-bit lane; their sum would not where all four codes
// are -128.
template <typename Format, int R, int Q>
void dots_of_bytes(const uint8_t* weights, const int8_t* codes, int64_t inputs, int first, int32x4_t (&dot)[R][Q]) {
  static_assert(-2 * 128 * 128 >= -32768 && 2 * 128 * 127 <= 32767);
  int32x4_t sums[R][Q][2];  // negative, of two outputs: places 0 and 1, 2 and 3
  for (int r = 0; r < R; ++r) {
    for (int q = 0; q < Q; ++q) sums[r][q][0] = sums[r][q][1] = vdupq_n_s32(0);
  }
  for (int step = 0; step < int(Format::kInputs / 8); ++step) {
    int8x16_t a[R][2];
    for (int r = 0; r < R; ++r) {
      for (int odd = 0; odd < 2; ++odd) a[r][odd] = broadcast4(codes + r * inputs + 8 * step + 4 * odd);
    }
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) {
      int8x16_t stored[2];
      Format::unpack(weights + Format::kStepBytes * step, first + q, stored[0], stored[1]);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const int16x8_t zero = vdupq_n_s16(0);
        const int16x8_t low = vmlsl_s8(vmlsl_s8(zero, vget_low_s8(stored[0]), vget_low_s8(a[r][0])),
                                       vget_low_s8(stored[1]), vget_low_s8(a[r][1]));
        const int16x8_t high = vmlsl_high_s8(vmlsl_high_s8(zero, stored[0], a[r][0]), stored[1], a[r][1]);
        sums[r][q][0] = vpadalq_s16(sums[r][q][0], low);
        sums[r][q][1] = vpadalq_s16(sums[r][q][1], high);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int q = 0; q < Q; ++q) dot[r][q] = vnegq_s32(vpaddq_s32(sums[r][q][0], sums[r][q][1]));
  }
}

// R rows of one block, Q quarters of it at a time; fp32 sums in args.acc.
template <typename Format, int R, int Q>
__attribute__((noinline)) void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
  const Tile t(args, row, block);
  const int64_t groups = args.groups * Format::kParts;
  clear<R>(t);
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t part = group / Format::kParts;
    for (int first = 0; first < 4; first += Q) {
      int32x4_t dot[R][Q];
      const uint8_t* weights = t.weights + Format::codes_at(group);
      const int8_t* codes = t.codes + group * Format::kInputs;
      if constexpr (Format::kNibbles)
        dots_of_nibbles<Format, R, Q>(weights, codes, t.inputs, first, dot);
      else
        dots_of_bytes<Format, R, Q>(weights, codes, t.inputs, first, dot);
      for (int q = 0; q < Q; ++q) {
        const float32x4_t weight_scale = Format::scales(t.weights + Format::scales_at(groups, group), first + q);
        for (int r = 0; r < R; ++r) {
          const int32x4_t start = vdupq_n_s32(-Format::kExcess * t.sums[r * t.stride + part]);
          accumulate(t, r, first + q, part, vaddq_s32(dot[r][q], start), weight_scale);
        }
      }
    }
  }
}

template <typename Format>
void linear(const LinearQuantArgs& args) {
  run_tiles<kTileRows>(args, [&](auto count, int64_t row, int64_t block) {
    tile<Format, count.value, (count.value <= 2 ? 4 : 2)>(args, row, block);
  });
}

}  // namespace

void TCIM_LITE_USE(linear_quant)(KernelTable& table) {
  enter_quantised(table, [](auto format) { return linear<NeonFormat<format.kValue>>; });
}

}  // namespace tcim_lite::cpu
