// Linear with quantised weights and sdot.
#include "backends/cpu/kernels/linear/linear_neon.h"

namespace tcim_lite::cpu {
namespace {

constexpr int kTileRows = 5;  // 5 x 4 sums, 5 activations, weights: fits 32 registers

// R rows of one block; fp32 sums in args.acc, integer ones start at -kExcess * sum(a). Few rows keep even and odd runs
// apart: sdot takes four cycles.
template <typename Format, int R>
__attribute__((noinline)) void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
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
        for (int eight = 0; eight < 2; ++eight)
          Format::unpack(weights + Format::kStepBytes * (2 * sixteen + eight), q, runs[2 * eight], runs[2 * eight + 1]);
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
