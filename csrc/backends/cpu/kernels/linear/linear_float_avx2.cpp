#include "backends/cpu/kernels/linear/linear_x86.h"

namespace tcim_lite::cpu {
namespace {

// Input k of 16 outputs.
struct HalfWeights {
  static constexpr int64_t kLineInputs = layout_of(WeightFormat::LinearF16).line_inputs;

  static void load(const uint8_t* block, int64_t k, __m256& low, __m256& high) {
    const __m128i shift = _mm_cvtsi32_si128(k % 2 == 0 ? 0 : 16);
    const __m256i keep = _mm256_set1_epi32(0xffff);
    const auto* pairs = reinterpret_cast<const __m256i*>(block + k / 2 * 64);
    const __m256i a = _mm256_and_si256(_mm256_srl_epi32(_mm256_load_si256(pairs), shift), keep);
    const __m256i b = _mm256_and_si256(_mm256_srl_epi32(_mm256_load_si256(pairs + 1), shift), keep);
    // packus works inside 128-bit lanes: a0 b0 a1 b1 becomes a0 a1 b0 b1.
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
    low = _mm256_cvtph_ps(_mm256_castsi256_si128(words));
    high = _mm256_cvtph_ps(_mm256_extracti128_si256(words, 1));
  }
};

struct FloatWeights {
  static constexpr int64_t kLineInputs = layout_of(WeightFormat::LinearF32).line_inputs;

  static void load(const uint8_t* block, int64_t k, __m256& low, __m256& high) {
    const float* at = reinterpret_cast<const float*>(block) + k * kBlockOutputs;
    low = _mm256_load_ps(at);
    high = _mm256_load_ps(at + 8);
  }
};

// R rows of a block. The first tile of a block fetches ahead what the rows after it read again.
template <typename Weights, int R, bool First>
void tile(const LinearFloatArgs& args, int64_t row, int64_t block) {
  const uint8_t* weights = args.weights + block * args.block_stride;
  const float* x = args.x + row * args.x_stride;
  __m256 acc[R][2];
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  for (int64_t k = 0; k < args.cols; ++k) {
    if constexpr (First)
      if (k % Weights::kLineInputs == 0) prefetch<kPagesAhead>(weights + k / Weights::kLineInputs * kLineBytes);
    __m256 low, high;
    Weights::load(weights, k, low, high);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256 value = _mm256_set1_ps(x[r * args.x_stride + k]);
      acc[r][0] = _mm256_fmadd_ps(low, value, acc[r][0]);
      acc[r][1] = _mm256_fmadd_ps(high, value, acc[r][1]);
    }
  }
  for (int r = 0; r < R; ++r) {
    float* out = args.acc + (row + r) * args.acc_stride + block * kBlockOutputs;
    _mm256_store_ps(out, acc[r][0]);
    _mm256_store_ps(out + 8, acc[r][1]);
  }
}

template <typename Weights>
void linear(const LinearFloatArgs& args) {
  for (int64_t block = 0; block < args.blocks; ++block) {
    int64_t row = args.rows < 4 ? 1 : 4;
    row == 1 ? tile<Weights, 1, true>(args, 0, block) : tile<Weights, 4, true>(args, 0, block);
    for (; row + 4 <= args.rows; row += 4) tile<Weights, 4, false>(args, row, block);
    for (; row < args.rows; ++row) tile<Weights, 1, false>(args, row, block);
  }
}

}  // namespace

void TCIM_LITE_USE(linear_float)(KernelTable& table) {
  table.linear[int(WeightFormat::LinearF16)].floats = linear<HalfWeights>;
  table.linear[int(WeightFormat::LinearF32)].floats = linear<FloatWeights>;
}

}  // namespace tcim_lite::cpu
