#include "backends/cpu/kernels/linear/linear_x86.h"

namespace tcim_lite::cpu {
namespace {

constexpr int kTileRows = 6;
constexpr int64_t kSpan = 64;           // inputs widened at a time: 16 KiB for four blocks
constexpr int kStreamRows = 2;          // up to here the weights come from memory rather than from a cache
constexpr Distance kAhead{8192, 2048};  // benchmarks/notes/log/cpu-kernels.md

// Two consecutive inputs of 16 outputs. fp16 pairs are interleaved per output: the low and the high words are narrowed
// apart.
struct HalfWeights {
  static constexpr int64_t kBytes = 64;  // per two inputs
  static void load(const uint8_t* p, __m512& first, __m512& second) {
    const __m512i pairs = _mm512_load_si512(p);
    const __m256i low = _mm512_cvtepi32_epi16(pairs), high = _mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16));
    first = _mm512_cvtph_ps(low);
    second = _mm512_cvtph_ps(high);
  }
  static __m512 load_last(const uint8_t* p) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_load_si512(p))); }
};

struct FloatWeights {
  static constexpr int64_t kBytes = 128;
  static void load(const uint8_t* p, __m512& first, __m512& second) {
    first = load_last(p);
    second = load_last(p + 64);
  }
  static __m512 load_last(const uint8_t* p) { return _mm512_load_ps(reinterpret_cast<const float*>(p)); }
};

// R rows by B blocks, sums in registers over all of K. One fma per output and input in ascending order is a chain of
// dependent fmas, so R * B should reach the latency times the throughput of the fma units.
// With `resume` they go on from what the inputs before have left in args.acc.
template <typename Weights, int R, int B>
void tile(const LinearFloatArgs& args, int64_t row, int64_t block, bool resume) {
  const uint8_t* weights = args.weights + block * args.block_stride;
  const float* x = args.x + row * args.x_stride;
  float* out = args.acc + row * args.acc_stride + block * kBlockOutputs;
  __m512 acc[R][B];
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b)
      acc[r][b] = resume ? _mm512_load_ps(out + r * args.acc_stride + b * kBlockOutputs) : _mm512_setzero_ps();
  }
  int64_t k = 0;
  for (; k + 2 <= args.cols; k += 2, weights += Weights::kBytes) {
    __m512 first[B], second[B];
    for (int b = 0; b < B; ++b) {
      const uint8_t* at = weights + b * args.block_stride;
      if constexpr (R <= kStreamRows) {
        for (int64_t line = 0; line < Weights::kBytes; line += 64) prefetch<kAhead>(at + line);
      }
      Weights::load(at, first[b], second[b]);
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512 x0 = _mm512_set1_ps(x[r * args.x_stride + k]), x1 = _mm512_set1_ps(x[r * args.x_stride + k + 1]);
      for (int b = 0; b < B; ++b) acc[r][b] = _mm512_fmadd_ps(first[b], x0, acc[r][b]);
      for (int b = 0; b < B; ++b) acc[r][b] = _mm512_fmadd_ps(second[b], x1, acc[r][b]);
    }
  }
  if (k < args.cols) {
    for (int b = 0; b < B; ++b) {
      const __m512 last = Weights::load_last(weights + b * args.block_stride);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        acc[r][b] = _mm512_fmadd_ps(last, _mm512_set1_ps(x[r * args.x_stride + k]), acc[r][b]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b) _mm512_store_ps(out + r * args.acc_stride + b * kBlockOutputs, acc[r][b]);
  }
}

// The weights of B blocks stay in cache while the rows pass.
template <typename Weights, int B>
void blocks(const LinearFloatArgs& args, int64_t block, bool resume = false) {
  constexpr decltype(&tile<Weights, 1, B>) kernels[] = {nullptr,
                                                        tile<Weights, 1, B>,
                                                        tile<Weights, 2, B>,
                                                        tile<Weights, 3, B>,
                                                        tile<Weights, 4, B>,
                                                        tile<Weights, 5, B>,
                                                        tile<Weights, 6, B>};
  const int64_t tiles = (args.rows + kTileRows - 1) / kTileRows;
  for (int64_t index = 0; index < tiles; ++index) {
    const int64_t row = args.rows * index / tiles, end = args.rows * (index + 1) / tiles;
    kernels[end - row](args, row, block, resume);
  }
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
        __m512 first, second;
        HalfWeights::load(from + k / 2 * HalfWeights::kBytes, first, second);
        _mm512_store_ps(widened[b] + k * kBlockOutputs, first);
        _mm512_store_ps(widened[b] + (k + 1) * kBlockOutputs, second);
      }
    }
    LinearFloatArgs span = args;
    span.weights = reinterpret_cast<const uint8_t*>(widened);
    span.block_stride = sizeof(widened[0]);
    span.cols = count;
    span.x = args.x + begin;
    span.acc = args.acc + block * kBlockOutputs;
    blocks<FloatWeights, B>(span, 0, begin > 0);
  }
}

template <int value>
struct Width {};

// body(first block, Width of the step): four blocks at a time, then two, then one.
template <typename Body>
void for_blocks(int64_t blocks, Body body) {
  int64_t block = 0;
  for (; block + 4 <= blocks; block += 4) body(block, Width<4>{});
  for (; block + 2 <= blocks; block += 2) body(block, Width<2>{});
  for (; block < blocks; ++block) body(block, Width<1>{});
}

template <typename Weights>
void linear(const LinearFloatArgs& args) {
  for_blocks(args.blocks, [&]<int B>(int64_t block, Width<B>) { blocks<Weights, B>(args, block); });
}

void linear_f16(const LinearFloatArgs& args) {
  if (args.rows <= kTileRows) return linear<HalfWeights>(args);
  for_blocks(args.blocks, [&]<int B>(int64_t block, Width<B>) { widened_blocks<B>(args, block); });
}

}  // namespace

void TCIM_LITE_USE(linear_float)(KernelTable& table) {
  table.linear[int(WeightFormat::LinearF16)].floats = linear_f16;
  table.linear[int(WeightFormat::LinearF32)].floats = linear<FloatWeights>;
}

}  // namespace tcim_lite::cpu
