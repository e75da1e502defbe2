// Linear with quantised weights and sdot.
#include "backends/cpu/kernels/linear_neon.h"

namespace tcim_lite::cpu {
namespace {

constexpr int kTileRows = 5;  // 5 x 4 sums, 5 activations, weights: fits 32 registers

// An unpacker returns the values to multiply for a quarter: 16 inputs as four runs of four. kExcess: they are this much
// larger than the codes; the sums start at -kExcess * sum(a).
struct RunsW4 : W4 {
  static constexpr int32_t kExcess = 8;

  static void unpack(const uint8_t* weights, int sixteen, int quarter, int8x16_t (&runs)[4]) {
    for (int line = 0; line < 2; ++line) {
      const uint8x16_t pairs = vld1q_u8(weights + 64 * (2 * sixteen + line) + 16 * quarter);
      runs[2 * line] = vreinterpretq_s8_u8(vandq_u8(pairs, vdupq_n_u8(15)));
      runs[2 * line + 1] = vreinterpretq_s8_u8(vshrq_n_u8(pairs, 4));
    }
  }
};

// The stored codes become signed by flipping their top bit.
struct RunsW8 : W8 {
  static constexpr int32_t kExcess = 0;

  static void unpack(const uint8_t* weights, int sixteen, int quarter, int8x16_t (&runs)[4]) {
    for (int line = 0; line < 4; ++line) {
      const uint8x16_t bytes = vld1q_u8(weights + 64 * (4 * sixteen + line) + 16 * quarter);
      runs[line] = vreinterpretq_s8_u8(veorq_u8(bytes, vdupq_n_u8(0x80)));
    }
  }
};

struct RunsMxfp4 : Mxfp4 {
  static constexpr int32_t kExcess = 0;

  static void unpack(const uint8_t* weights, int sixteen, int quarter, int8x16_t (&runs)[4]) {
    RunsW4::unpack(weights, sixteen, quarter, runs);
    for (int run = 0; run < 4; ++run) runs[run] = decode(vreinterpretq_u8_s8(runs[run]));
  }
};

// R rows of one block; fp32 sums in args.acc. Few rows keep even and odd runs apart: sdot takes four cycles.
template <typename Format, int R>
void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
  constexpr int kSets = R <= 2 ? 2 : 1;
  const Tile t(args, row, block);
  const int64_t groups = args.groups * Format::kParts;
  clear<R>(t);
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t part = group / Format::kParts;
    const uint8_t* weights = t.weights + Format::codes_at(group);
    const int8_t* codes = t.codes + group * Format::kInputs;
    int32x4_t sums[kSets][R][4];
    for (int r = 0; r < R; ++r) {
      const int32x4_t start = vdupq_n_s32(-Format::kExcess * t.sums[r * t.stride + part]);
      for (int q = 0; q < 4; ++q) {
        sums[0][r][q] = start;
        if constexpr (kSets == 2) sums[1][r][q] = vdupq_n_s32(0);
      }
    }
    for (int sixteen = 0; sixteen < Format::kInputs / 16; ++sixteen) {
      int8x16_t a[R];
      for (int r = 0; r < R; ++r) a[r] = vld1q_s8(codes + r * t.inputs + 16 * sixteen);
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        int8x16_t runs[4];
        Format::unpack(weights, sixteen, q, runs);
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
    for (int q = 0; q < 4; ++q) {
      const float32x4_t weight_scale = Format::scales(t.weights + Format::scales_at(groups, group), q);
#pragma GCC unroll 5
      for (int r = 0; r < R; ++r) {
        int32x4_t dot = sums[0][r][q];
        if constexpr (kSets == 2) dot = vaddq_s32(dot, sums[1][r][q]);
        accumulate(t, r, q, part, dot, weight_scale);
      }
    }
  }
}

template <typename F>
constexpr TileKernel kTiles[kTileRows + 1] = {nullptr, tile<F, 1>, tile<F, 2>, tile<F, 3>, tile<F, 4>, tile<F, 5>};

template <typename Format>
void linear(const LinearQuantArgs& args) {
  run_tiles(args, kTileRows, kTiles<Format>);
}

}  // namespace

void TCIM_LITE_USE(linear_quant)(KernelTable& table) {
  enter_quantised(table, linear<RunsW4>, linear<RunsW8>, linear<RunsMxfp4>);
}

}  // namespace tcim_lite::cpu
