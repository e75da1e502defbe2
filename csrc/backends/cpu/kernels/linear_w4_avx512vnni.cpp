// Linear with 4-bit weights. Lanes run across the 16 outputs of a block, so the order of accumulation per output is the
// reference's. vpdpbusd takes the stored codes as its unsigned operand and four activations broadcast from memory; the
// sum starts at -8 * sum(a), which undoes the +8 of the stored codes.
#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kGroup = 64;
constexpr int64_t kGroupBytes = kGroup * 8;  // codes of one group of one block
constexpr int64_t kScaleBytes = 32;          // 16 fp16
constexpr int kTileRows = 12;  // 12 x 2 sums, 4 unpacked weight registers, 1-2 broadcasts, 1 mask: 31 of 32 registers

// Groups lie in pairs: codes of both, then scales of both (graph/weight_format.h).
constexpr int64_t kPairBytes = 2 * (kGroupBytes + kScaleBytes);
constexpr int64_t codes_at(int64_t group) { return group / 2 * kPairBytes + group % 2 * kGroupBytes; }
constexpr int64_t scales_at(int64_t group) {
  return group / 2 * kPairBytes + 2 * kGroupBytes + group % 2 * kScaleBytes;
}

// Four pairs of groups ahead into the second cache; where the hardware stops at the end of a page (Intel), eight, and
// four ahead from there into the first (benchmarks/notes/cpu-kernels.md).
template <bool Intel>
void prefetch(const uint8_t* p) {
  constexpr int64_t kFarBytes = (Intel ? 8 : 4) * kPairBytes, kNearBytes = 4 * kPairBytes;
  _mm_prefetch(reinterpret_cast<const char*>(p + kFarBytes), _MM_HINT_T1);
  if constexpr (Intel) _mm_prefetch(reinterpret_cast<const char*>(p + kNearBytes), _MM_HINT_T0);
}

__m512i broadcast4(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof(four));
  return _mm512_set1_epi32(four);
}

__m512 load_scales(const uint8_t* scales) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(scales)));
}

__m512i start(int32_t code_sum) {
  return _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(_mm512_set1_epi32(code_sum), 3));
}

// Up to 8 rows: bound by the weight stream, one block at a time, fp32 sums in registers. The high nibbles are used in
// place, as 16 * code in a sum of their own, which saves the shift.
template <int R, bool Intel>
void few_rows(const LinearQuantArgs& args) {
  const __m512i low_mask = _mm512_set1_epi8(0x0f), high_mask = _mm512_set1_epi8(char(0xf0));
  const int64_t inputs = args.groups * kGroup;
  for (int64_t block = 0; block < args.blocks; ++block) {
    const uint8_t* first = args.weights + block * args.block_stride;
    const int8_t* codes = args.codes;
    __m512 acc[R];
    for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_ps();
    for (int64_t group = 0; group < args.groups; ++group, codes += kGroup) {
      const uint8_t* weights = first + codes_at(group);
      prefetch<Intel>(first + scales_at(group));
      __m512i low[R], high[R];
      for (int r = 0; r < R; ++r) {
        low[r] = start(args.sums[r * args.groups + group]);
        high[r] = _mm512_setzero_si512();
      }
#pragma GCC unroll 8
      for (int step = 0; step < 8; ++step) {
        prefetch<Intel>(weights + 64 * step);
        const __m512i pairs = _mm512_load_si512(weights + 64 * step);
        const __m512i low_codes = _mm512_and_si512(pairs, low_mask), high_codes = _mm512_and_si512(pairs, high_mask);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const int8_t* a = codes + r * inputs + 8 * step;
          low[r] = _mm512_dpbusd_epi32(low[r], low_codes, broadcast4(a));
          high[r] = _mm512_dpbusd_epi32(high[r], high_codes, broadcast4(a + 4));
        }
      }
      const __m512 weight_scale = load_scales(first + scales_at(group));
      for (int r = 0; r < R; ++r) {
        const __m512i dot = _mm512_add_epi32(low[r], _mm512_srai_epi32(high[r], 4));
        const __m512 scale = _mm512_mul_ps(weight_scale, _mm512_set1_ps(args.scales[r * args.groups + group]));
        acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, acc[r]);
      }
    }
    for (int r = 0; r < R; ++r) _mm512_store_ps(args.acc + r * args.acc_stride + block * kOutputs, acc[r]);
  }
}

// R rows by B blocks: int32 sums of one group in registers, fp32 sums in args.acc, which stays in the first cache.
template <int R, int B>
void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
  const __m512i low_mask = _mm512_set1_epi8(0x0f);
  const int64_t inputs = args.groups * kGroup;
  const uint8_t* first = args.weights + block * args.block_stride;
  const int8_t* codes = args.codes + row * inputs;
  const float* row_scales = args.scales + row * args.groups;
  const int32_t* sums = args.sums + row * args.groups;
  float* acc = args.acc + row * args.acc_stride + block * kOutputs;
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b) _mm512_store_ps(acc + r * args.acc_stride + b * kOutputs, _mm512_setzero_ps());
  }
  for (int64_t group = 0; group < args.groups; ++group, codes += kGroup) {
    const uint8_t* weights = first + codes_at(group);
    __m512i dot[R][B];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const __m512i zero = start(sums[r * args.groups + group]);
      for (int b = 0; b < B; ++b) dot[r][b] = zero;
    }
#pragma GCC unroll 8
    for (int step = 0; step < 8; ++step) {
      __m512i low[B], high[B];
      for (int b = 0; b < B; ++b) {
        const __m512i pairs = _mm512_load_si512(weights + b * args.block_stride + 64 * step);
        low[b] = _mm512_and_si512(pairs, low_mask);
        high[b] = _mm512_and_si512(_mm512_srli_epi16(pairs, 4), low_mask);
      }
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {
        const __m512i even = broadcast4(codes + r * inputs + 8 * step);
        for (int b = 0; b < B; ++b) dot[r][b] = _mm512_dpbusd_epi32(dot[r][b], low[b], even);
        const __m512i odd = broadcast4(codes + r * inputs + 8 * step + 4);
        for (int b = 0; b < B; ++b) dot[r][b] = _mm512_dpbusd_epi32(dot[r][b], high[b], odd);
      }
    }
    __m512 weight_scale[B];
    for (int b = 0; b < B; ++b) weight_scale[b] = load_scales(first + scales_at(group) + b * args.block_stride);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const __m512 row_scale = _mm512_set1_ps(row_scales[r * args.groups + group]);
      for (int b = 0; b < B; ++b) {
        float* sum = acc + r * args.acc_stride + b * kOutputs;
        const __m512 scale = _mm512_mul_ps(weight_scale[b], row_scale);
        _mm512_store_ps(sum, _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][b]), scale, _mm512_load_ps(sum)));
      }
    }
  }
}

using Tile = void (*)(const LinearQuantArgs&, int64_t row, int64_t block);
// [blocks - 1][rows]; more than kFewRows rows split evenly never give a tile of fewer than 6.
constexpr Tile kTiles[2][kTileRows + 1] = {{nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, tile<6, 1>,
                                            tile<7, 1>, tile<8, 1>, tile<9, 1>, tile<10, 1>, tile<11, 1>, tile<12, 1>},
                                           {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, tile<6, 2>,
                                            tile<7, 2>, tile<8, 2>, tile<9, 2>, tile<10, 2>, tile<11, 2>, tile<12, 2>}};

template <bool Intel>
void linear_w4(const LinearQuantArgs& args) {
  static_assert(kFewRows == 8);
  switch (args.rows) {
    case 1:
      return few_rows<1, Intel>(args);
    case 2:
      return few_rows<2, Intel>(args);
    case 3:
      return few_rows<3, Intel>(args);
    case 4:
      return few_rows<4, Intel>(args);
    case 5:
      return few_rows<5, Intel>(args);
    case 6:
      return few_rows<6, Intel>(args);
    case 7:
      return few_rows<7, Intel>(args);
    case 8:
      return few_rows<8, Intel>(args);
  }
  const int64_t tiles = (args.rows + kTileRows - 1) / kTileRows;
  for (int64_t block = 0; block < args.blocks; block += 2) {
    const Tile* by_rows = kTiles[block + 1 < args.blocks];
    for (int64_t index = 0; index < tiles; ++index) {
      const int64_t row = args.rows * index / tiles, end = args.rows * (index + 1) / tiles;
      by_rows[end - row](args, row, block);
    }
  }
}

}  // namespace

void use_linear_w4_avx512vnni(KernelTable& table) {
  table.linear_w4 = table.tuning.prefetch_past_page ? linear_w4<true> : linear_w4<false>;
}

}  // namespace tcim_lite::cpu
