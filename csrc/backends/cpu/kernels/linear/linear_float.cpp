// Linear with float weights: lanes are the 16 outputs of a block.
#include "backends/cpu/kernels/linear/linear_tile.h"
#include "backends/cpu/kernels/vector/simd.h"
#ifdef __AVX2__
#include "backends/cpu/kernels/linear/linear_x86.h"
#endif

namespace tcim_lite::cpu {
namespace {

// Rows and blocks of a tile: one fma for each output and input, in ascending order, is a chain of dependent fmas, so
// their product should reach the latency times the throughput of the fma units. And how few rows fetch the lines of
// weights ahead, which then come from memory rather than from a cache (benchmarks/notes/log/cpu-kernels.md).
#if defined(__AVX512F__)
constexpr int kTileRows = 6, kTileBlocks = 4, kStreamRows = 2;
__attribute__((always_inline)) inline void fetch_ahead(const uint8_t* line) { prefetch<Distance{8192, 2048}>(line); }
#elif defined(__AVX2__)
constexpr int kTileRows = 4, kTileBlocks = 1, kStreamRows = 4;
__attribute__((always_inline)) inline void fetch_ahead(const uint8_t* line) { prefetch<kPagesAhead>(line); }
#else
constexpr int kTileRows = 6, kTileBlocks = 1, kStreamRows = 0;
inline void fetch_ahead(const uint8_t*) {}
#endif
constexpr int64_t kSpan = 256;  // inputs widened at a time: 16 KiB a block, which the second cache holds

// Two consecutive inputs of 16 outputs, fp16 pairs of each output; where K is odd the second of the last is padding.
struct HalfWeights {
  static constexpr int64_t kBytes = 64;
  static void load_two(const uint8_t* p, Vec& first, Vec& second) {
    const auto* pairs = reinterpret_cast<const uint16_t*>(p);
    split(load(pairs), load(pairs + kLanes), first, second);
  }
  static Vec load_last(const uint8_t* p) {
    Vec last, padding;
    load_two(p, last, padding);
    return last;
  }
};

struct FloatWeights {
  static constexpr int64_t kBytes = 128;
  static void load_two(const uint8_t* p, Vec& first, Vec& second) {
    first = load_last(p);
    second = load_last(p + kBytes / 2);
  }
  static Vec load_last(const uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
};

template <typename Weights>
__attribute__((always_inline)) inline void fetch_two(const uint8_t* weights) {
  for (int64_t line = 0; line < Weights::kBytes; line += kLineBytes) fetch_ahead(weights + line);
}

// How a tile goes through its inputs.
struct Pass {
  bool resumes = false;  // the sums go on from what the inputs before have left in args.acc
  bool streams = true;   // no other tile had these weights before
};

// R rows by B blocks, sums in registers over all of K.
template <typename Weights, int R, int B>
__attribute__((noinline)) void tile(const LinearFloatArgs& args, int64_t row, int64_t block, Pass pass) {
  const uint8_t* weights = args.weights + block * args.block_stride;
  const float* x = args.x + row * args.x_stride;
  float* out = args.acc + row * args.acc_stride + block * kBlockOutputs;
  Vec acc[R][B];
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b)
      acc[r][b] = pass.resumes ? load(out + r * args.acc_stride + b * kBlockOutputs) : broadcast(0.0f);
  }
  int64_t k = 0;
  for (; k + 2 <= args.cols; k += 2, weights += Weights::kBytes) {
    Vec first[B], second[B];
    for (int b = 0; b < B; ++b) {
      const uint8_t* at = weights + b * args.block_stride;
      if (R <= kStreamRows && pass.streams) fetch_two<Weights>(at);
      Weights::load_two(at, first[b], second[b]);
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const Vec x0 = broadcast(x[r * args.x_stride + k]), x1 = broadcast(x[r * args.x_stride + k + 1]);
      for (int b = 0; b < B; ++b) acc[r][b] = fma(first[b], x0, acc[r][b]);
      for (int b = 0; b < B; ++b) acc[r][b] = fma(second[b], x1, acc[r][b]);
    }
  }
  if (k < args.cols) {
    for (int b = 0; b < B; ++b) {
      const Vec last = Weights::load_last(weights + b * args.block_stride);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) acc[r][b] = fma(last, broadcast(x[r * args.x_stride + k]), acc[r][b]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b) store(out + r * args.acc_stride + b * kBlockOutputs, acc[r][b]);
  }
}

// The weights of B blocks stay in cache while the rows pass.
template <typename Weights, int B>
void blocks(const LinearFloatArgs& args, int64_t block, Pass pass = {}) {
  for_tiles(args.rows, kTileRows, [&](int64_t row, int64_t rows) {
    with_count<kTileRows>(rows, [&](auto count) { tile<Weights, count.value, B>(args, row, block, pass); });
    pass.streams = false;
  });
}

// The same for fp16 weights and several tiles of rows: a span of inputs is widened once for all of them.
template <int B>
void widened_blocks(const LinearFloatArgs& args, int64_t block) {
  alignas(64) float widened[B][kSpan * kBlockOutputs];
  for (int64_t begin = 0; begin < args.cols; begin += kSpan) {
    const int64_t count = args.cols - begin < kSpan ? args.cols - begin : kSpan;
    for (int b = 0; b < B; ++b) {
      const uint8_t* from = args.weights + (block + b) * args.block_stride + begin / 2 * HalfWeights::kBytes;
      for (int64_t k = 0; k < count; k += 2) {  // an odd K is padded
        Vec first, second;
        fetch_two<HalfWeights>(from + k / 2 * HalfWeights::kBytes);
        HalfWeights::load_two(from + k / 2 * HalfWeights::kBytes, first, second);
        store(widened[b] + k * kBlockOutputs, first);
        store(widened[b] + (k + 1) * kBlockOutputs, second);
      }
    }
    LinearFloatArgs span = args;
    span.weights = reinterpret_cast<const uint8_t*>(widened);
    span.block_stride = sizeof(widened[0]);
    span.cols = count;
    span.x = args.x + begin;
    span.acc = args.acc + block * kBlockOutputs;
    blocks<FloatWeights, B>(span, 0, {.resumes = begin > 0, .streams = false});
  }
}

// body(first block, how many): kTileBlocks at a time, then half as many.
template <int B = kTileBlocks, typename Body>
void for_blocks(int64_t count, const Body& body, int64_t block = 0) {
  for (; block + B <= count; block += B) body(block, Number<B>{});
  if constexpr (B > 1) for_blocks<B / 2>(count, body, block);
}

template <typename Weights>
void linear(const LinearFloatArgs& args) {
  for_blocks(args.blocks, [&](int64_t block, auto count) { blocks<Weights, count.value>(args, block); });
}

void linear_f16(const LinearFloatArgs& args) {
  if (args.rows <= kTileRows) return linear<HalfWeights>(args);
  for_blocks(args.blocks, [&](int64_t block, auto count) { widened_blocks<count.value>(args, block); });
}

}  // namespace

void TCIM_LITE_USE(linear_float)(KernelTable& table) {
  table.linear[int(WeightFormat::LinearF16)].floats = linear_f16;
  table.linear[int(WeightFormat::LinearF32)].floats = linear<FloatWeights>;
}

}  // namespace tcim_lite::cpu
