// Linear with 4-bit weights on ymm registers: vpdpbusd takes the stored codes as its unsigned operand and four
// activations broadcast from memory; the sum starts at -8 * sum(a), which undoes the +8 of the stored codes.
#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kGroup = 64;
constexpr int64_t kGroupBytes = kGroup * 8;  // codes of one group of one block
constexpr int64_t kScaleBytes = 32;          // 16 fp16
constexpr int64_t kPrefetchBytes = 4 * 2 * (kGroupBytes + kScaleBytes);
constexpr int kTileRows = 6;  // 6 x 2 sums, 2 unpacked weights, a broadcast: 15 of 16 registers

// Groups lie in pairs: codes of both, then scales of both (graph/weight_format.h).
constexpr int64_t kPairBytes = 2 * (kGroupBytes + kScaleBytes);
constexpr int64_t codes_at(int64_t group) { return group / 2 * kPairBytes + group % 2 * kGroupBytes; }
constexpr int64_t scales_at(int64_t group) {
  return group / 2 * kPairBytes + 2 * kGroupBytes + group % 2 * kScaleBytes;
}

void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

__m256i broadcast4(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof(four));
  return _mm256_set1_epi32(four);
}

__m256i load(const uint8_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }

// vpdpbusd takes five cycles and two start per cycle, so few rows spread over more sums: with one row even and odd
// steps, with up to two low and high nibbles apart, the high ones in place as 16 * code, which saves the shift.
template <int R>
constexpr int kSets = R == 1   ? 4
                      : R == 2 ? 2
                               : 1;

// R rows of one block. With Stream the weights come from memory and are fetched ahead.
template <int R, bool Stream>
void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
  constexpr bool kInPlace = kSets<R> > 1;
  const __m256i low_mask = _mm256_set1_epi8(0x0f), high_mask = _mm256_set1_epi8(char(0xf0));
  const int64_t inputs = args.groups * kGroup;
  const uint8_t* first = args.weights + block * args.block_stride;
  const int8_t* codes = args.codes + row * inputs;
  const float* row_scales = args.scales + row * args.groups;
  const int32_t* code_sums = args.sums + row * args.groups;
  float* acc = args.acc + row * args.acc_stride + block * kOutputs;
  for (int r = 0; r < R; ++r) {
    for (int half = 0; half < 2; ++half) _mm256_store_ps(acc + r * args.acc_stride + 8 * half, _mm256_setzero_ps());
  }
  for (int64_t group = 0; group < args.groups; ++group, codes += kGroup) {
    const uint8_t* weights = first + codes_at(group);
    if constexpr (Stream) prefetch(first + scales_at(group) + kPrefetchBytes);
    __m256i sums[kSets<R>][R][2];
    for (int r = 0; r < R; ++r) {
      const __m256i start = _mm256_set1_epi32(-8 * code_sums[r * args.groups + group]);
      for (int set = 0; set < kSets<R>; ++set) {
        for (int half = 0; half < 2; ++half) sums[set][r][half] = set == 0 ? start : _mm256_setzero_si256();
      }
    }
#pragma GCC unroll 8
    for (int step = 0; step < 8; ++step) {
      if constexpr (Stream) prefetch(weights + kPrefetchBytes + 64 * step);
      constexpr int kHighSet = kInPlace ? 1 : 0;
      const int set = R == 1 ? step % 2 * 2 : 0;
#pragma GCC unroll 2
      for (int nibble = 0; nibble < 2; ++nibble) {
        __m256i stored[2];
        for (int half = 0; half < 2; ++half) {
          const __m256i pairs = load(weights + 64 * step + 32 * half);
          if (nibble == 0)
            stored[half] = _mm256_and_si256(pairs, low_mask);
          else if (kInPlace)
            stored[half] = _mm256_and_si256(pairs, high_mask);
          else
            stored[half] = _mm256_and_si256(_mm256_srli_epi16(pairs, 4), low_mask);
        }
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          const __m256i four = broadcast4(codes + r * inputs + 8 * step + 4 * nibble);
          for (int half = 0; half < 2; ++half) {
            __m256i& sum = sums[set + kHighSet * nibble][r][half];
            sum = _mm256_dpbusd_avx_epi32(sum, stored[half], four);
          }
        }
      }
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const uint8_t* at = first + scales_at(group) + 16 * half;
      const __m256 weight_scale = _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        __m256i dot = sums[0][r][half];
        if constexpr (R == 1) {
          const __m256i high = _mm256_add_epi32(sums[1][r][half], sums[3][r][half]);
          dot = _mm256_add_epi32(_mm256_add_epi32(dot, sums[2][r][half]), _mm256_srai_epi32(high, 4));
        } else if constexpr (R == 2) {
          dot = _mm256_add_epi32(dot, _mm256_srai_epi32(sums[1][r][half], 4));
        }
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

void linear_w4(const LinearQuantArgs& args) {
  if (args.rows <= kTileRows) {
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

void use_linear_w4_avxvnni(KernelTable& table) { table.linear_w4 = linear_w4; }

}  // namespace tcim_lite::cpu
