// Linear with 8-bit weights on ymm registers: vpdpbusd takes the stored codes as its unsigned operand and four
// activations broadcast from memory; the sum starts at -128 * sum(a), which undoes the +128 of the stored codes.
#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kGroup = 64;
constexpr int64_t kGroupBytes = kGroup * 16;  // codes of one group of one block
constexpr int64_t kScaleBytes = 16;           // 16 int8 exponents
constexpr int kTileRows = 6;                  // 6 x 2 sums, 2 weights, a broadcast: 15 of 16 registers

void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

__m256i broadcast4(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof(four));
  return _mm256_set1_epi32(four);
}

__m256i load(const uint8_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }

__m256 powers_of_two(const uint8_t* exponents) {
  const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(exponents)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(wide, _mm256_set1_epi32(127)), 23));
}

// vpdpbusd takes five cycles and two start per cycle, so few rows spread the steps over more sums.
template <int R>
constexpr int kSets = R == 1   ? 4
                      : R == 2 ? 2
                               : 1;

// R rows of one block. With Stream the weights come from memory: the scales, a stream of their own that the hardware
// finds too late, are fetched one block ahead.
template <int R, bool Stream>
void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
  const int64_t inputs = args.groups * kGroup;
  const uint8_t* weights = args.weights + block * args.block_stride;
  const uint8_t* scales = weights + args.groups * kGroupBytes;
  const int8_t* codes = args.codes + row * inputs;
  const float* row_scales = args.scales + row * args.groups;
  const int32_t* code_sums = args.sums + row * args.groups;
  float* acc = args.acc + row * args.acc_stride + block * kOutputs;
  for (int r = 0; r < R; ++r) {
    for (int half = 0; half < 2; ++half) _mm256_store_ps(acc + r * args.acc_stride + 8 * half, _mm256_setzero_ps());
  }
  for (int64_t group = 0; group < args.groups; ++group, weights += kGroupBytes, codes += kGroup) {
    if constexpr (Stream) prefetch(scales + args.block_stride + group * kScaleBytes);
    __m256i sums[kSets<R>][R][2];
    for (int r = 0; r < R; ++r) {
      const __m256i start = _mm256_set1_epi32(-128 * code_sums[r * args.groups + group]);
      for (int set = 0; set < kSets<R>; ++set) {
        for (int half = 0; half < 2; ++half) sums[set][r][half] = set == 0 ? start : _mm256_setzero_si256();
      }
    }
#pragma GCC unroll 16
    for (int step = 0; step < 16; ++step) {
      const __m256i stored[2] = {load(weights + 64 * step), load(weights + 64 * step + 32)};
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m256i four = broadcast4(codes + r * inputs + 4 * step);
        for (int half = 0; half < 2; ++half) {
          __m256i& sum = sums[step % kSets<R>][r][half];
          sum = _mm256_dpbusd_avx_epi32(sum, stored[half], four);
        }
      }
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m256 weight_scale = powers_of_two(scales + group * kScaleBytes + 8 * half);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        __m256i dot = sums[0][r][half];
        for (int set = 1; set < kSets<R>; ++set) dot = _mm256_add_epi32(dot, sums[set][r][half]);
        const __m256 scale = _mm256_mul_ps(weight_scale, _mm256_set1_ps(row_scales[r * args.groups + group]));
        float* sum = acc + r * args.acc_stride + 8 * half;
        _mm256_store_ps(sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, _mm256_load_ps(sum)));
      }
    }
  }
}

using Tile = void (*)(const LinearQuantArgs&, int64_t row, int64_t block);
constexpr Tile kStream[kTileRows + 1] = {nullptr,       tile<1, true>, tile<2, true>, tile<3, true>,
                                         tile<4, true>, tile<5, true>, tile<6, true>};
// More than kTileRows rows split evenly never give a tile of fewer than 3.
constexpr Tile kTiles[kTileRows + 1] = {nullptr,        nullptr,        nullptr,       tile<3, false>,
                                        tile<4, false>, tile<5, false>, tile<6, false>};

void linear_w8(const LinearQuantArgs& args) {
  if (args.rows <= kTileRows) {
    for (int64_t at = 0; at < args.groups * kScaleBytes; at += 64) {
      prefetch(args.weights + args.groups * kGroupBytes + at);
    }
    for (int64_t block = 0; block < args.blocks; ++block) kStream[args.rows](args, 0, block);
    return;
  }
  const int64_t tiles = (args.rows + kTileRows - 1) / kTileRows;
  for (int64_t block = 0; block < args.blocks; ++block) {
    for (int64_t index = 0; index < tiles; ++index) {
      const int64_t row = args.rows * index / tiles, end = args.rows * (index + 1) / tiles;
      kTiles[end - row](args, row, block);
    }
  }
}

}  // namespace

void use_linear_w8_avxvnni(KernelTable& table) { table.linear_w8 = linear_w8; }

}  // namespace tcim_lite::cpu
