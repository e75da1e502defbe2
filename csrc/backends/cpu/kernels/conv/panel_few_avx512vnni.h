// The last columns of a panel where they fill little of a vector: of 49 pixels one, of 196 four. They are multiplied
// with lanes across outputs, as weights are stored, in place of a vector of columns.
#pragma once

#include "backends/cpu/kernels/conv/dot4.h"
#include "backends/cpu/kernels/conv/panel_scales_avx512vnni.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kFewColumns = 4;

struct SumsOfFew {
  Vec of[kFewColumns];  // lanes are the outputs of a block
};

// Of a column each, groups [first, end). Several sums of each column stand beside each other: one alone waits for its
// last product.
template <int Columns>
void few_columns(const PanelQuantArgs& args, const uint8_t* block, const BlockScales& scales, int64_t first,
                 int64_t end, int64_t column, SumsOfFew& sums) {
  constexpr int kParts = 8 / Columns;
  Vec acc[Columns];
  for (int c = 0; c < Columns; ++c) acc[c] = first == 0 ? broadcast(0.0f) : sums.of[c];
  for (int64_t group = first; group < end; ++group) {
    const uint8_t* weights = block + W8::codes_at(group);
    const int32_t* codes = args.codes + group * kSteps * kPanel + column;
    const int64_t at = group * kPanel + column;
    Ints dots[Columns][kParts];
    for (int c = 0; c < Columns; ++c) {
      dots[c][0] = broadcast(args.starts[at + c]);
      for (int part = 1; part < kParts; ++part) dots[c][part] = broadcast(0);
    }
#pragma GCC unroll 16
    for (int step = 0; step < kSteps; ++step) {
      const Weights line = Weights::line(weights + step * kLineBytes);
#pragma GCC unroll 4
      for (int c = 0; c < Columns; ++c) {
        Ints& dot = dots[c][step % kParts];
        dot = add_products(dot, line, broadcast(codes[step * kPanel + c]));
      }
    }
    const Vec weight_scales = load(scales.of + (group - first) * kBlockOutputs);
    for (int c = 0; c < Columns; ++c) {
      Ints dot = dots[c][0];
      for (int part = 1; part < kParts; ++part) dot = dot + dots[c][part];
      acc[c] = fma(to_floats(dot), weight_scales * broadcast(args.scales[at + c]), acc[c]);
    }
  }
  for (int c = 0; c < Columns; ++c) sums.of[c] = acc[c];
}

// More columns than `count` may be computed: they have codes.
inline void few_columns(const PanelQuantArgs& args, const uint8_t* block, const BlockScales& scales, int64_t first,
                        int64_t end, int64_t column, int64_t count, SumsOfFew& sums) {
  count > 2    ? few_columns<4>(args, block, scales, first, end, column, sums)
  : count == 2 ? few_columns<2>(args, block, scales, first, end, column, sums)
               : few_columns<1>(args, block, scales, first, end, column, sums);
}

// acc[n, c] of `count` columns.
inline void turn_few(const SumsOfFew& sums, int64_t count, float* acc) {
  alignas(64) float column[kBlockOutputs];
  for (int64_t c = 0; c < count; ++c) {
    store(column, sums.of[c]);
    for (int64_t n = 0; n < kBlockOutputs; ++n) acc[n * kPanel + c] = column[n];
  }
}

}  // namespace
}  // namespace tcim_lite::cpu
