// Linear with 8-bit weights, lanes across outputs. Codes go up to 255, where vpmaddubsw would saturate, so both sides
// are widened to 16 bits and multiplied with vpmaddwd.
#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kGroup = 64;
constexpr int64_t kGroupBytes = kGroup * 16;

__m256i broadcast_words(const int16_t* a) {
  int64_t four;
  __builtin_memcpy(&four, a, sizeof(four));
  return _mm256_set1_epi64x(four);
}

__m256 powers_of_two(const uint8_t* exponents) {
  const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(exponents)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(wide, _mm256_set1_epi32(127)), 23));
}

// R rows of one block, Q quarters of it (4 outputs each) at a time; fp32 sums in args.acc.
template <int R, int Q>
void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
  const int64_t inputs = args.groups * kGroup;
  const uint8_t* weights = args.weights + block * args.block_stride;
  const uint8_t* scales = weights + args.groups * kGroupBytes;
  const float* row_scales = args.scales + row * args.groups;
  const int32_t* code_sums = args.sums + row * args.groups;
  float* acc = args.acc + row * args.acc_stride + block * kOutputs;
  for (int r = 0; r < R; ++r) {
    for (int half = 0; half < 2; ++half) _mm256_store_ps(acc + r * args.acc_stride + 8 * half, _mm256_setzero_ps());
  }
  for (int64_t group = 0; group < args.groups; ++group, weights += kGroupBytes) {
    alignas(32) int16_t wide[R][kGroup];
    for (int r = 0; r < R; ++r) {
      const int8_t* codes = args.codes + (row + r) * inputs + group * kGroup;
      for (int i = 0; i < kGroup; i += 16) {
        const __m256i words = _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(codes + i)));
        _mm256_store_si256(reinterpret_cast<__m256i*>(wide[r] + i), words);
      }
    }
    for (int first = 0; first < 4; first += Q) {
      __m256i pairs[R][Q];  // of 4 outputs each: the sums of inputs 0, 1 and of inputs 2, 3
      for (int r = 0; r < R; ++r) {
        for (int q = 0; q < Q; ++q) pairs[r][q] = _mm256_setzero_si256();
      }
#pragma GCC unroll 4
      for (int step = 0; step < 16; ++step) {
        __m256i stored[Q];
        for (int q = 0; q < Q; ++q) {
          const uint8_t* at = weights + 64 * step + 16 * (first + q);
          stored[q] = _mm256_cvtepu8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
        }
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          const __m256i four = broadcast_words(wide[r] + 4 * step);
          for (int q = 0; q < Q; ++q) {
            pairs[r][q] = _mm256_add_epi32(pairs[r][q], _mm256_madd_epi16(stored[q], four));
          }
        }
      }
      for (int q = 0; q < Q; q += 2) {
        const int64_t output = 4 * (first + q);
        const __m256 weight_scale = powers_of_two(scales + group * 16 + output);
        for (int r = 0; r < R; ++r) {
          const __m256i start = _mm256_set1_epi32(-128 * code_sums[r * args.groups + group]);
          const __m256i both = _mm256_hadd_epi32(pairs[r][q], pairs[r][q + 1]);
          const __m256i dot = _mm256_add_epi32(_mm256_permute4x64_epi64(both, 0xd8), start);
          const __m256 scale = _mm256_mul_ps(weight_scale, _mm256_set1_ps(row_scales[r * args.groups + group]));
          float* sum = acc + r * args.acc_stride + output;
          _mm256_store_ps(sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, _mm256_load_ps(sum)));
        }
      }
    }
  }
}

using Tile = void (*)(const LinearQuantArgs&, int64_t row, int64_t block);
constexpr int kTileRows = 6;  // 6 x 2 sums, 2 weights, a broadcast, a product: all 16 registers
constexpr Tile kTiles[kTileRows + 1] = {nullptr,    tile<1, 4>, tile<2, 4>, tile<3, 2>,
                                        tile<4, 2>, tile<5, 2>, tile<6, 2>};

void linear_w8(const LinearQuantArgs& args) {
  const int64_t tiles = (args.rows + kTileRows - 1) / kTileRows;
  for (int64_t block = 0; block < args.blocks; ++block) {
    for (int64_t index = 0; index < tiles; ++index) {
      const int64_t row = args.rows * index / tiles, end = args.rows * (index + 1) / tiles;
      kTiles[end - row](args, row, block);
    }
  }
}

}  // namespace

void use_linear_w8_avx2(KernelTable& table) { table.linear_w8 = linear_w8; }

}  // namespace tcim_lite::cpu
