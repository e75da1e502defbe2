// Conv with quantised weights, a panel of pixels at a time. Lanes run across the pixels, so that planes come in and go
// out as they lie in memory, and a pixel's order of accumulation is the reference's.
#include "backends/cpu/kernels/conv/dot4.h"
#include "backends/cpu/kernels/conv/panel_codes.h"

namespace tcim_lite::cpu {
namespace {

// Outputs of a tile, and its vectors of pixels: its sums fill half of the registers.
#if defined(__AVX512F__)
constexpr int kTileOutputs = 8, kTileVecs = 2;
#else
constexpr int kTileOutputs = 4, kTileVecs = 1;
#endif

// Groups [first, end) of outputs [output, output + kTileOutputs) of a block, V vectors of pixels. Meanwhile the codes
// of `next`, a block that is needed later, are fetched.
template <int V>
void tile(const PanelQuantArgs& args, const uint8_t* block, const uint8_t* next, int64_t first, int64_t end,
          int64_t output, int64_t column, float* acc) {
  for (int64_t group = first; group < end; ++group) {
    const uint8_t* weights = block + W8::codes_at(group) + 4 * output;
    const uint8_t* exponents = block + W8::scales_at(args.groups, group) + output;
    const int32_t* codes = args.codes + group * kSteps * kPanel + column;
    Ints dots[kTileOutputs][V];
    for (int v = 0; v < V; ++v) {
      const Ints zero = kCountsOffset ? load(args.starts + group * kPanel + column + v * kLanes) : broadcast(0);
#pragma GCC unroll 8
      for (int n = 0; n < kTileOutputs; ++n) dots[n][v] = zero;
    }
#pragma GCC unroll 16
    for (int step = 0; step < kSteps; ++step) {  // as a loop gcc 12 copies every sum once a step
      prefetch_near(next + W8::codes_at(group) + step * kLineBytes);
      Ints four[V];
      for (int v = 0; v < V; ++v) four[v] = load(codes + step * kPanel + v * kLanes);
#pragma GCC unroll 8
      for (int n = 0; n < kTileOutputs; ++n) {
        const Weights factor(weights + step * kLineBytes + 4 * n);
        for (int v = 0; v < V; ++v) dots[n][v] = add_products(dots[n][v], factor, four[v]);
      }
    }
    Vec scales[V];
    for (int v = 0; v < V; ++v) scales[v] = load(args.scales + group * kPanel + column + v * kLanes);
    const auto finish = [&](int n) __attribute__((always_inline)) {
      const Vec weight_scale = broadcast(scale_of(exponents[n]));
      for (int v = 0; v < V; ++v) {
        float* sum = acc + n * kPanel + v * kLanes;
        const Vec before = group == 0 ? broadcast(0.0f) : load(sum);
        store(sum, fma(to_floats(dots[n][v]), weight_scale * scales[v], before));
      }
    };
#pragma GCC unroll 8
    for (int n = 0; n < kTileOutputs; ++n) finish(n);
  }
}

// Some groups of all outputs at a time: their codes, and all fp32 sums, stay in the first cache.
void panel_quant(const PanelQuantArgs& args) {
  constexpr int64_t kSome = 8;
  for (int64_t first = 0; first < args.groups; first += kSome) {
    const int64_t end = first + kSome < args.groups ? first + kSome : args.groups;
    for (int64_t block = 0; block < args.blocks; ++block) {
      const uint8_t* weights = args.weights + block * args.block_stride;
      // Of the first blocks of the next groups; a fetch of what does not exist has no effect.
      const uint8_t* next = block + 1 < args.blocks ? weights + args.block_stride : args.weights + W8::codes_at(kSome);
      for (int64_t output = 0; output < kBlockOutputs; output += kTileOutputs) {
        float* acc = args.acc + (block * kBlockOutputs + output) * kPanel;
        int64_t column = 0;
        for (; column + (kTileVecs - 1) * kLanes < args.cols; column += kTileVecs * kLanes)
          tile<kTileVecs>(args, weights, next, first, end, output, column, acc + column);
        if (column < args.cols) tile<1>(args, weights, next, first, end, output, column, acc + column);
      }
    }
  }
}

}  // namespace

void TCIM_LITE_USE(panel)(KernelTable& table) {
  table.panel_codes = panel_codes;
  table.panel_quant = panel_quant;
}

}  // namespace tcim_lite::cpu
