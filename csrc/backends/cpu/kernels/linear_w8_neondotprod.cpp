// Linear with 8-bit weights and sdot: the stored codes become signed by flipping their top bit, so no correction is
// needed.
#include <arm_neon.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kGroup = 64;
constexpr int64_t kGroupBytes = kGroup * 16;  // codes of one group of one block
constexpr int kTileRows = 5;                  // 5 x 4 sums, 5 activations, weights: fits 32 registers

// Scales of four outputs: 2^e.
float32x4_t scales_of(const uint8_t* scales, int64_t group, int quarter) {
  uint32_t four;
  __builtin_memcpy(&four, scales + group * kOutputs + 4 * quarter, sizeof(four));
  const int16x8_t exponents = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)));
  const int32x4_t biased = vaddq_s32(vmovl_s16(vget_low_s16(exponents)), vdupq_n_s32(127));
  return vreinterpretq_f32_s32(vshlq_n_s32(biased, 23));
}

// sum[0..4) = fma(dot, weight scale * row scale, sum).
void accumulate(float* sum, int32x4_t dot, float32x4_t weight_scale, float row_scale) {
  vst1q_f32(sum, vfmaq_f32(vld1q_f32(sum), vcvtq_f32_s32(dot), vmulq_n_f32(weight_scale, row_scale)));
}

// R rows of one block; fp32 sums in args.acc. Few rows keep even and odd steps apart: sdot takes four cycles.
template <int R>
void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
  constexpr int kSets = R <= 2 ? 2 : 1;
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
    int32x4_t sums[kSets][R][4];
    for (int set = 0; set < kSets; ++set) {
      for (int r = 0; r < R; ++r) {
        for (int q = 0; q < 4; ++q) sums[set][r][q] = vdupq_n_s32(0);
      }
    }
    for (int step = 0; step < 16; step += 4) {
      int8x16_t a[R];
      for (int r = 0; r < R; ++r) a[r] = vld1q_s8(codes + r * inputs + 4 * step);
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        int8x16_t stored[4];
        for (int i = 0; i < 4; ++i) {
          const uint8x16_t bytes = vld1q_u8(weights + 64 * (step + i) + 16 * q);
          stored[i] = vreinterpretq_s8_u8(veorq_u8(bytes, vdupq_n_u8(0x80)));
        }
#pragma GCC unroll 5
        for (int r = 0; r < R; ++r) {
          int32x4_t& even = sums[0][r][q];
          int32x4_t& odd = sums[kSets - 1][r][q];
          even = vdotq_laneq_s32(even, stored[0], a[r], 0);
          odd = vdotq_laneq_s32(odd, stored[1], a[r], 1);
          even = vdotq_laneq_s32(even, stored[2], a[r], 2);
          odd = vdotq_laneq_s32(odd, stored[3], a[r], 3);
        }
      }
    }
    for (int q = 0; q < 4; ++q) {
      const float32x4_t weight_scale = scales_of(scales, group, q);
#pragma GCC unroll 5
      for (int r = 0; r < R; ++r) {
        int32x4_t dot = sums[0][r][q];
        if constexpr (kSets == 2) dot = vaddq_s32(dot, sums[1][r][q]);
        accumulate(acc + r * args.acc_stride + 4 * q, dot, weight_scale, row_scales[r * args.groups + group]);
      }
    }
  }
}

using Tile = void (*)(const LinearQuantArgs&, int64_t row, int64_t block);
constexpr Tile kTiles[kTileRows + 1] = {nullptr, tile<1>, tile<2>, tile<3>, tile<4>, tile<5>};

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

void use_linear_w8_neondotprod(KernelTable& table) { table.linear_w8 = linear_w8; }

}  // namespace tcim_lite::cpu
