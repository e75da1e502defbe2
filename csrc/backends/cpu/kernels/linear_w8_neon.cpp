// Linear with 8-bit weights for CPUs without the dot product instructions. The stored codes become signed by flipping
// their top bit, so no correction is needed; two products fit a 16-bit lane.
#include <arm_neon.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kGroup = 64;
constexpr int64_t kGroupBytes = kGroup * 16;  // codes of one group of one block
constexpr int kTileRows = 4;                  // 16 sums, activations and weights: fits 32 registers
static_assert(2 * 128 * 127 <= 32767);

// Scales of four outputs: 2^e.
float32x4_t scales_of(const uint8_t* scales, int64_t group, int quarter) {
  uint32_t four;
  __builtin_memcpy(&four, scales + group * kOutputs + 4 * quarter, sizeof(four));
  const int16x8_t exponents = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)));
  const int32x4_t biased = vaddq_s32(vmovl_s16(vget_low_s16(exponents)), vdupq_n_s32(127));
  return vreinterpretq_f32_s32(vshlq_n_s32(biased, 23));
}

// Four activations, repeated.
int8x16_t broadcast4(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof(four));
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

// sum[0..4) = fma(dot, weight scale * row scale, sum).
void accumulate(float* sum, int32x4_t dot, float32x4_t weight_scale, float row_scale) {
  vst1q_f32(sum, vfmaq_f32(vld1q_f32(sum), vcvtq_f32_s32(dot), vmulq_n_f32(weight_scale, row_scale)));
}

// R rows of one block, Q quarters of it (4 outputs each) at a time; fp32 sums in args.acc.
template <int R, int Q>
void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
  const int64_t inputs = args.groups * kGroup;
  const uint8_t* weights = args.weights + block * args.block_stride;
  const uint8_t* scales = weights + args.groups * kGroupBytes;
  const int8_t* codes = args.codes + row * inputs;
  const float* row_scales = args.scales + row * args.groups;
  float* acc = args.acc + row * args.acc_stride + block * kOutputs;
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 4; ++i) vst1q_f32(acc + r * args.acc_stride + 4 * i, vdupq_n_f32(0.0f));
  }
  for (int64_t group = 0; group < args.groups; ++group, weights += kGroupBytes, codes += kGroup) {
    for (int first = 0; first < 4; first += Q) {
      int32x4_t sums[R][Q][2];  // of two outputs: places 0 and 1, 2 and 3
      for (int r = 0; r < R; ++r) {
        for (int q = 0; q < Q; ++q) sums[r][q][0] = sums[r][q][1] = vdupq_n_s32(0);
      }
      for (int step = 0; step < 16; step += 2) {
        int8x16_t a[R][2];
        for (int r = 0; r < R; ++r) {
          for (int odd = 0; odd < 2; ++odd) a[r][odd] = broadcast4(codes + r * inputs + 4 * (step + odd));
        }
#pragma GCC unroll 4
        for (int q = 0; q < Q; ++q) {
          int8x16_t stored[2];
          for (int odd = 0; odd < 2; ++odd) {
            const uint8x16_t bytes = vld1q_u8(weights + 64 * (step + odd) + 16 * (first + q));
            stored[odd] = vreinterpretq_s8_u8(veorq_u8(bytes, vdupq_n_u8(0x80)));
          }
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r) {
            const int16x8_t low = vmlal_s8(vmull_s8(vget_low_s8(stored[0]), vget_low_s8(a[r][0])),
                                           vget_low_s8(stored[1]), vget_low_s8(a[r][1]));
            const int16x8_t high = vmlal_high_s8(vmull_high_s8(stored[0], a[r][0]), stored[1], a[r][1]);
            sums[r][q][0] = vpadalq_s16(sums[r][q][0], low);
            sums[r][q][1] = vpadalq_s16(sums[r][q][1], high);
          }
        }
      }
      for (int q = 0; q < Q; ++q) {
        const float32x4_t weight_scale = scales_of(scales, group, first + q);
        for (int r = 0; r < R; ++r) {
          accumulate(acc + r * args.acc_stride + 4 * (first + q), vpaddq_s32(sums[r][q][0], sums[r][q][1]),
                     weight_scale, row_scales[r * args.groups + group]);
        }
      }
    }
  }
}

using Tile = void (*)(const LinearQuantArgs&, int64_t row, int64_t block);
constexpr Tile kTiles[kTileRows + 1] = {nullptr, tile<1, 4>, tile<2, 4>, tile<3, 2>, tile<4, 2>};

void linear_w8(const LinearQuantArgs& args) {
  const int64_t tiles = (args.rows + kTileRows - 1) / kTileRows;
  for (int64_t block = 0; block < args.blocks; ++block) {
    for (int64_t index = 0; index < tiles; ++index) {
      const int64_t row = args.rows * index / tiles, end = args.rows * (index + 1) / tiles;
      kTiles[end - row](args, row, block);
    }
  }
}

}  // namespace

void use_linear_w8_neon(KernelTable& table) { table.linear_w8 = linear_w8; }

}  // namespace tcim_lite::cpu
