// Linear with 4-bit weights and sdot: the stored codes, 0 to 15, are the signed operand as they are; the sum starts at
// -8 * sum(a), which undoes the +8.
#include <arm_neon.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kGroup = 64;
constexpr int64_t kGroupBytes = kGroup * 8;  // codes of one group of one block
constexpr int64_t kScaleBytes = 32;          // 16 fp16
constexpr int kTileRows = 5;                 // 5 x 4 sums, 5 activations, weights: fits 32 registers

// Groups lie in pairs: codes of both, then scales of both (graph/weight_format.h).
constexpr int64_t kPairBytes = 2 * (kGroupBytes + kScaleBytes);
constexpr int64_t codes_at(int64_t group) { return group / 2 * kPairBytes + group % 2 * kGroupBytes; }
constexpr int64_t scales_at(int64_t group) {
  return group / 2 * kPairBytes + 2 * kGroupBytes + group % 2 * kScaleBytes;
}

// Scales of four outputs.
float32x4_t scales_of(const uint8_t* block, int64_t group, int quarter) {
  const auto* halves = reinterpret_cast<const uint16_t*>(block + scales_at(group)) + 4 * quarter;
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(halves)));
}

// sum[0..4) = fma(dot, weight scale * row scale, sum).
void accumulate(float* sum, int32x4_t dot, float32x4_t weight_scale, float row_scale) {
  vst1q_f32(sum, vfmaq_f32(vld1q_f32(sum), vcvtq_f32_s32(dot), vmulq_n_f32(weight_scale, row_scale)));
}

// R rows of one block; fp32 sums in args.acc. Few rows keep the nibbles in sums of their own: sdot takes four cycles.
template <int R>
void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
  constexpr int kSets = R <= 2 ? 2 : 1;
  const int64_t inputs = args.groups * kGroup;
  const uint8_t* first_group = args.weights + block * args.block_stride;
  const int8_t* codes = args.codes + row * inputs;
  const float* row_scales = args.scales + row * args.groups;
  const int32_t* code_sums = args.sums + row * args.groups;
  float* acc = args.acc + row * args.acc_stride + block * kOutputs;
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 4; ++i) vst1q_f32(acc + r * args.acc_stride + 4 * i, vdupq_n_f32(0.0f));
  }
  for (int64_t group = 0; group < args.groups; ++group, codes += kGroup) {
    const uint8_t* weights = first_group + codes_at(group);
    int32x4_t sums[kSets][R][4];
    for (int r = 0; r < R; ++r) {
      const int32x4_t start = vdupq_n_s32(-8 * code_sums[r * args.groups + group]);
      for (int q = 0; q < 4; ++q) {
        sums[0][r][q] = start;
        if constexpr (kSets == 2) sums[1][r][q] = vdupq_n_s32(0);
      }
    }
    for (int step = 0; step < 8; step += 2) {
      int8x16_t a[R];
      for (int r = 0; r < R; ++r) a[r] = vld1q_s8(codes + r * inputs + 8 * step);
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        const uint8x16_t first = vld1q_u8(weights + 64 * step + 16 * q);
        const uint8x16_t second = vld1q_u8(weights + 64 * step + 64 + 16 * q);
        const int8x16_t stored[4] = {
            vreinterpretq_s8_u8(vandq_u8(first, vdupq_n_u8(15))), vreinterpretq_s8_u8(vshrq_n_u8(first, 4)),
            vreinterpretq_s8_u8(vandq_u8(second, vdupq_n_u8(15))), vreinterpretq_s8_u8(vshrq_n_u8(second, 4))};
#pragma GCC unroll 5
        for (int r = 0; r < R; ++r) {
          int32x4_t& low = sums[0][r][q];
          int32x4_t& high = sums[kSets - 1][r][q];
          low = vdotq_laneq_s32(low, stored[0], a[r], 0);
          high = vdotq_laneq_s32(high, stored[1], a[r], 1);
          low = vdotq_laneq_s32(low, stored[2], a[r], 2);
          high = vdotq_laneq_s32(high, stored[3], a[r], 3);
        }
      }
    }
    for (int q = 0; q < 4; ++q) {
      const float32x4_t weight_scale = scales_of(first_group, group, q);
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

void linear_w4(const LinearQuantArgs& args) {
  const int64_t tiles = (args.rows + kTileRows - 1) / kTileRows;
  for (int64_t block = 0; block < args.blocks; ++block) {
    for (int64_t index = 0; index < tiles; ++index) {
      const int64_t row = args.rows * index / tiles, end = args.rows * (index + 1) / tiles;
      kTiles[end - row](args, row, block);
    }
  }
}

}  // namespace

void use_linear_w4_neondotprod(KernelTable& table) { table.linear_w4 = linear_w4; }

}  // namespace tcim_lite::cpu
