// Linear with 4-bit weights for CPUs without the dot product instructions. Each 16-bit lane sums the products of one of
// the four places in a step; the 16 products of a group fit, so widening to 32 bits happens once per group.
#include <arm_neon.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kGroup = 64;
constexpr int64_t kGroupBytes = kGroup * 8;  // codes of one group of one block
constexpr int64_t kScaleBytes = 32;          // 16 fp16
constexpr int kTileRows = 4;                 // 16 sums, activations and weights: fits 32 registers
static_assert(16 * 15 * 127 <= 32767);

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
    for (int first = 0; first < 4; first += Q) {
      int16x8_t products[R][Q][2];  // of two outputs, four places each
      for (int r = 0; r < R; ++r) {
        for (int q = 0; q < Q; ++q) products[r][q][0] = products[r][q][1] = vdupq_n_s16(0);
      }
#pragma GCC unroll 2
      for (int step = 0; step < 8; ++step) {
        int8x16_t a[R][2];
        for (int r = 0; r < R; ++r) {
          for (int nibble = 0; nibble < 2; ++nibble) {
            a[r][nibble] = broadcast4(codes + r * inputs + 8 * step + 4 * nibble);
          }
        }
#pragma GCC unroll 4
        for (int q = 0; q < Q; ++q) {
          const uint8x16_t pairs = vld1q_u8(weights + 64 * step + 16 * (first + q));
          const int8x16_t stored[2] = {vreinterpretq_s8_u8(vandq_u8(pairs, vdupq_n_u8(15))),
                                       vreinterpretq_s8_u8(vshrq_n_u8(pairs, 4))};
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
      for (int q = 0; q < Q; ++q) {
        const float32x4_t weight_scale = scales_of(first_group, group, first + q);
        for (int r = 0; r < R; ++r) {
          const int32x4_t start = vdupq_n_s32(-8 * code_sums[r * args.groups + group]);
          const int32x4_t dot = vpaddq_s32(vpaddlq_s16(products[r][q][0]), vpaddlq_s16(products[r][q][1]));
          accumulate(acc + r * args.acc_stride + 4 * (first + q), vaddq_s32(dot, start), weight_scale,
                     row_scales[r * args.groups + group]);
        }
      }
    }
  }
}

using Tile = void (*)(const LinearQuantArgs&, int64_t row, int64_t block);
constexpr Tile kTiles[kTileRows + 1] = {nullptr, tile<1, 4>, tile<2, 4>, tile<3, 2>, tile<4, 2>};

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

void use_linear_w4_neon(KernelTable& table) { table.linear_w4 = linear_w4; }

}  // namespace tcim_lite::cpu
