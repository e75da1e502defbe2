// panel.cpp with the registers of AVX-512 and VPDPBUSD: both the sums of a group's codes and those in fp32 stay in
// them, scales of columns are in what sums of codes begin with, and few columns at the end of a panel get tiles of
// their own.
#include "backends/cpu/kernels/conv/dot4.h"
#include "backends/cpu/kernels/conv/panel_codes.h"
#include "backends/cpu/kernels/conv/panel_few_avx512vnni.h"
#include "backends/cpu/kernels/conv/panel_scales_avx512vnni.h"

namespace tcim_lite::cpu {
namespace {

// Groups [first, end) of N outputs of a block from `output` on, V vectors of pixels. Registers hold the fp32 sums
// beside those of codes. Meanwhile N lines of each group of `next`, the block behind this one, are fetched, and of
// `later` into the second cache. Steps: those of each group that k reaches, or more.
template <int N, int V, int Steps>
void tile(const PanelQuantArgs& args, const uint8_t* block, const BlockScales& scales, const uint8_t* next,
          const uint8_t* later, int64_t first, int64_t end, int64_t output, int64_t column, float* acc) {
  acc += output * kPanel + column;
  const auto sum_at = [=](int n, int v) { return acc + n * kPanel + v * kLanes; };
  Vec sums[N][V];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    for (int v = 0; v < V; ++v) sums[n][v] = first == 0 ? broadcast(0.0f) : load(sum_at(n, v));
  }
  const uint8_t* weights = block + W8::codes_at(first) + 4 * output;
  const float* weight_scales = scales.of + output;
  const int32_t* codes = args.codes + first * kSteps * kPanel + column;
  next += W8::codes_at(first) + output * kLineBytes;
  later += W8::codes_at(first) + output * kLineBytes;
  for (int64_t group = first; group < end; ++group) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      prefetch_near(next + n * kLineBytes);
      prefetch_far(later + n * kLineBytes);
    }
    Vec origins[V];
    Ints dots[N][V];
    for (int v = 0; v < V; ++v) {
      const int64_t at = group * kPanel + column + v * kLanes;
      const Ints origin = origin_of(load(args.scales + at));
      const Ints start = origin + load(args.starts + at);
      origins[v] = from_bits(origin);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) dots[n][v] = start;
    }
    const auto finish = [&](int n) __attribute__((always_inline)) {
      const Vec weight_scale = broadcast(weight_scales[n]);
      for (int v = 0; v < V; ++v) sums[n][v] = fma(from_bits(dots[n][v]) - origins[v], weight_scale, sums[n][v]);
    };
#pragma GCC unroll 16
    for (int step = 0; step < Steps; ++step) {  // as a loop gcc 12 copies every sum once a step
      Ints four[V];
      for (int v = 0; v < V; ++v) four[v] = load(codes + step * kPanel + v * kLanes);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const Weights factor(weights + step * kLineBytes + 4 * n);
        for (int v = 0; v < V; ++v) dots[n][v] = add_products(dots[n][v], factor, four[v]);
        if (step == Steps - 1 && n > 0) finish(n - 1);  // behind the products of the next output
      }
    }
    finish(N - 1);
    weights += kSteps * kLineBytes, next += kSteps * kLineBytes, later += kSteps * kLineBytes;
    codes += kSteps * kPanel, weight_scales += kBlockOutputs;
  }
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    for (int v = 0; v < V; ++v) store(sum_at(n, v), sums[n][v]);
  }
}

// The same of all outputs and a vector of pixels, with scales of any size.
void any_scales(const PanelQuantArgs& args, const uint8_t* block, const BlockScales& scales, int64_t first, int64_t end,
                int64_t column, float* acc) {
  for (int64_t group = first; group < end; ++group) {
    const int64_t at = group * kPanel + column;
    const Vec scale = load(args.scales + at);
    for (int64_t n = 0; n < kBlockOutputs; ++n) {
      Ints dot = load(args.starts + at);
      for (int64_t step = 0; step < kSteps; ++step)
        dot = add_products(dot, Weights(block + W8::codes_at(group) + step * kLineBytes + 4 * n),
                           load(args.codes + (group * kSteps + step) * kPanel + column));
      float* sum = acc + n * kPanel + column;
      const Vec weight_scale = broadcast(scales.of[(group - first) * kBlockOutputs + n]);
      store(sum, fma(to_floats(dot), weight_scale * scale, group == 0 ? broadcast(0.0f) : load(sum)));
    }
  }
}

// Some groups of a block at `columns` pixels, whole vectors.
template <int Steps>
void block_of_tiles(const PanelQuantArgs& args, const uint8_t* block, const BlockScales& scales, const uint8_t* next,
                    const uint8_t* later, int64_t first, int64_t end, int64_t columns, float* acc) {
  int64_t column = 0;
  for (; scales.outside && column < columns; column += kLanes) any_scales(args, block, scales, first, end, column, acc);
  for (; column + 2 * kLanes <= columns; column += 2 * kLanes) {
    tile<5, 2, Steps>(args, block, scales, next, later, first, end, 0, column, acc);
    tile<5, 2, Steps>(args, block, scales, next, later, first, end, 5, column, acc);
    tile<6, 2, Steps>(args, block, scales, next, later, first, end, 10, column, acc);
  }
  if (column < columns) {
    tile<8, 1, Steps>(args, block, scales, next, later, first, end, 0, column, acc);
    tile<8, 1, Steps>(args, block, scales, next, later, first, end, 8, column, acc);
  }
}

// Some groups of all outputs; of the columns, the last `few` are no whole vector.
template <int Steps>
void some_groups(const PanelQuantArgs& args, int64_t first, int64_t end, int64_t columns, int64_t few,
                 SumsOfFew* sums_of_few) {
  for (int64_t index = 0; index < args.blocks; ++index) {
    const uint8_t* block = args.weights + index * args.block_stride;
    // Of the first blocks of the next groups; a fetch of what does not exist has no effect.
    const uint8_t* next =
        index + 1 < args.blocks ? block + args.block_stride : args.weights + W8::codes_at(BlockScales::kGroups);
    const uint8_t* later = args.later ? args.later + index * args.block_stride : block;
    const BlockScales scales(block, args.groups, first, end);
    float* acc = args.acc + index * kBlockOutputs * kPanel;
    block_of_tiles<Steps>(args, block, scales, next, later, first, end, columns, acc);
    if (few > 0) few_columns(args, block, scales, first, end, columns, few, sums_of_few[index]);
  }
}

// Some groups at a time: their codes, and all fp32 sums, stay in the first cache. A last one that k does not fill comes
// alone, with a half or a quarter of the steps where they do.
void panel_quant(const PanelQuantArgs& args) {
  const int64_t left = args.k % kGroup, filled = left > 0 && left <= kGroup / 2 ? args.groups - 1 : args.groups;
  const int64_t few = args.cols % kLanes <= kFewColumns ? args.cols % kLanes : 0;
  const int64_t columns = (args.cols - few + kLanes - 1) / kLanes * kLanes;
  SumsOfFew sums_of_few[kPanelBlocks];
  for (int64_t first = 0; first < filled; first += BlockScales::kGroups) {
    const int64_t end = first + BlockScales::kGroups < filled ? first + BlockScales::kGroups : filled;
    some_groups<kSteps>(args, first, end, columns, few, sums_of_few);
  }
  if (filled < args.groups) {
    const auto last = left <= kGroup / 4 ? some_groups<kSteps / 4> : some_groups<kSteps / 2>;
    last(args, filled, args.groups, columns, few, sums_of_few);
  }
  for (int64_t block = 0; few > 0 && block < args.blocks; ++block)
    turn_few(sums_of_few[block], few, args.acc + block * kBlockOutputs * kPanel + columns);
}

}  // namespace

void TCIM_LITE_USE(panel)(KernelTable& table) {
  table.panel_codes = panel_codes;
  table.panel_quant = panel_quant;
}

}  // namespace tcim_lite::cpu
