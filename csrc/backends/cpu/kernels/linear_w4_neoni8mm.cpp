// Linear with 4-bit weights and usmmla, which multiplies two outputs by two rows over eight inputs. The low and high
// nibbles of an output are its inputs k..k+3 and k+4..k+7: interleaving them by 32 bits makes eight inputs in a row.
// The sum starts at -8 * sum(a), which undoes the +8 of the stored codes.
#include <arm_neon.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kGroup = 64;
constexpr int64_t kGroupBytes = kGroup * 8;  // codes of one group of one block
constexpr int64_t kScaleBytes = 32;          // 16 fp16
constexpr int kTileRows = 6;                 // 3 pairs x 8 sums, 3 activations, weights: fits 32 registers

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

// One row of one block with usdot, as a pair would waste half of usmmla. Two sums each: usdot takes four cycles.
void one_row(const LinearQuantArgs& args, int64_t row, int64_t block) {
  constexpr int R = 1;
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
    int32x4_t low[4], high[4];
    for (int q = 0; q < 4; ++q) {
      low[q] = vdupq_n_s32(-8 * code_sums[group]);
      high[q] = vdupq_n_s32(0);
    }
    for (int step = 0; step < 8; step += 2) {
      const int8x16_t a = vld1q_s8(codes + 8 * step);
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        const uint8x16_t first = vld1q_u8(weights + 64 * step + 16 * q);
        const uint8x16_t second = vld1q_u8(weights + 64 * step + 64 + 16 * q);
        low[q] = vusdotq_laneq_s32(low[q], vandq_u8(first, vdupq_n_u8(15)), a, 0);
        high[q] = vusdotq_laneq_s32(high[q], vshrq_n_u8(first, 4), a, 1);
        low[q] = vusdotq_laneq_s32(low[q], vandq_u8(second, vdupq_n_u8(15)), a, 2);
        high[q] = vusdotq_laneq_s32(high[q], vshrq_n_u8(second, 4), a, 3);
      }
    }
    for (int q = 0; q < 4; ++q) {
      accumulate(acc + 4 * q, vaddq_s32(low[q], high[q]), scales_of(first_group, group, q), row_scales[group]);
    }
  }
}

// R rows of one block, the last pair half empty when R is odd; fp32 sums in args.acc.
template <int R>
void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
  constexpr int kPairs = (R + 1) / 2;
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
    int32x4_t sums[kPairs][4][2];  // output n, rows 2 p and 2 p + 1; then output n + 1
    for (int p = 0; p < kPairs; ++p) {
      const int32_t* own = code_sums + 2 * p * args.groups + group;
      const int32_t start[2] = {-8 * own[0], 2 * p + 1 < R ? -8 * own[args.groups] : 0};
      const int32x2_t two = vld1_s32(start);
      for (int q = 0; q < 4; ++q) sums[p][q][0] = sums[p][q][1] = vcombine_s32(two, two);
    }
    for (int step = 0; step < 8; ++step) {
      int8x16_t a[kPairs];
      for (int p = 0; p < kPairs; ++p) {
        const int8_t* at = codes + 2 * p * inputs + 8 * step;
        a[p] = vcombine_s8(vld1_s8(at), 2 * p + 1 < R ? vld1_s8(at + inputs) : vdup_n_s8(0));
      }
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        const uint8x16_t pairs = vld1q_u8(weights + 64 * step + 16 * q);
        const uint32x4_t low = vreinterpretq_u32_u8(vandq_u8(pairs, vdupq_n_u8(15)));
        const uint32x4_t high = vreinterpretq_u32_u8(vshrq_n_u8(pairs, 4));
        const uint8x16_t first = vreinterpretq_u8_u32(vzip1q_u32(low, high));
        const uint8x16_t second = vreinterpretq_u8_u32(vzip2q_u32(low, high));
#pragma GCC unroll 3
        for (int p = 0; p < kPairs; ++p) {
          sums[p][q][0] = vusmmlaq_s32(sums[p][q][0], first, a[p]);
          sums[p][q][1] = vusmmlaq_s32(sums[p][q][1], second, a[p]);
        }
      }
    }
    for (int q = 0; q < 4; ++q) {
      const float32x4_t weight_scale = scales_of(first_group, group, q);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const int32x4_t* pair = sums[r / 2][q];
        const int32x4_t dot = r % 2 == 0 ? vuzp1q_s32(pair[0], pair[1]) : vuzp2q_s32(pair[0], pair[1]);
        accumulate(acc + r * args.acc_stride + 4 * q, dot, weight_scale, row_scales[r * args.groups + group]);
      }
    }
  }
}

using Tile = void (*)(const LinearQuantArgs&, int64_t row, int64_t block);
constexpr Tile kTiles[kTileRows + 1] = {nullptr, one_row, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>};

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

void use_linear_w4_neoni8mm(KernelTable& table) { table.linear_w4 = linear_w4; }

}  // namespace tcim_lite::cpu
