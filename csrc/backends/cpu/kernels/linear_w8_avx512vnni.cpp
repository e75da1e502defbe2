// Linear with 8-bit weights. Lanes run across the 16 outputs of a block, so the order of accumulation per output is the
// reference's. vpdpbusd takes the stored codes as its unsigned operand and four activations broadcast from memory; the
// sum starts at -128 * sum(a), which undoes the +128 of the stored codes.
#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kGroup = 64;
constexpr int64_t kGroupBytes = kGroup * 16;  // codes of one group of one block
constexpr int64_t kScaleBytes = 16;           // 16 int8 exponents
constexpr int64_t kFarBytes = 8 * kGroupBytes, kNearBytes = 4 * kGroupBytes;
constexpr int kTileRows = 12;  // 12 x 2 sums, 2 weight registers, a few broadcasts: fits 32 registers

void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }
void prefetch_near(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }

__m512i broadcast4(const int8_t* a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof(four));
  return _mm512_set1_epi32(four);
}

// 2^e of the 16 outputs.
__m512 block_scales(const uint8_t* scales, int64_t group) {
  const __m128i exponents = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + group * kScaleBytes));
  const __m512i biased = _mm512_add_epi32(_mm512_cvtepi8_epi32(exponents), _mm512_set1_epi32(127));
  return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
}

__m512i start(int32_t code_sum) {
  return _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(_mm512_set1_epi32(code_sum), 7));
}

// Up to 8 rows: bound by the weight stream, one block at a time, fp32 sums in registers. Two integer sums per row halve
// the chain of dependent vpdpbusd. The scales lie behind the codes, a stream of their own that the hardware finds too
// late: those of the next block are fetched one block ahead. Codes are fetched too where the hardware stops at the end
// of a page (Intel), into the second cache and from there into the first: 1.1 of the read rate against 0.76 without on
// Emerald Rapids. Zen 4 loses by it (benchmarks/notes/cpu-kernels.md).
template <int R, bool Intel>
void few_rows(const LinearQuantArgs& args) {
  const int64_t inputs = args.groups * kGroup;
  for (int64_t at = 0; at < args.groups * kScaleBytes; at += 64)
    prefetch(args.weights + args.groups * kGroupBytes + at);
  for (int64_t block = 0; block < args.blocks; ++block) {
    const uint8_t* weights = args.weights + block * args.block_stride;
    const uint8_t* scales = weights + args.groups * kGroupBytes;
    const int8_t* codes = args.codes;
    __m512 acc[R];
    for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_ps();
    for (int64_t group = 0; group < args.groups; ++group, weights += kGroupBytes, codes += kGroup) {
      prefetch(scales + args.block_stride + group * kScaleBytes);
      __m512i even[R], odd[R];
      for (int r = 0; r < R; ++r) {
        even[r] = start(args.sums[r * args.groups + group]);
        odd[r] = _mm512_setzero_si512();
      }
#pragma GCC unroll 8
      for (int step = 0; step < 8; ++step) {
        const uint8_t* first = weights + 128 * step;
        if constexpr (Intel) {
          for (int64_t line = 0; line < 128; line += 64) {
            prefetch(first + line + kFarBytes);
            prefetch_near(first + line + kNearBytes);
          }
        }
        const __m512i even_codes = _mm512_load_si512(first), odd_codes = _mm512_load_si512(first + 64);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const int8_t* a = codes + r * inputs + 8 * step;
          even[r] = _mm512_dpbusd_epi32(even[r], even_codes, broadcast4(a));
          odd[r] = _mm512_dpbusd_epi32(odd[r], odd_codes, broadcast4(a + 4));
        }
      }
      const __m512 weight_scale = block_scales(scales, group);
      for (int r = 0; r < R; ++r) {
        const __m512i dot = _mm512_add_epi32(even[r], odd[r]);
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
  const int64_t inputs = args.groups * kGroup;
  const uint8_t* weights = args.weights + block * args.block_stride;
  const uint8_t* scales = weights + args.groups * kGroupBytes;
  const int8_t* codes = args.codes + row * inputs;
  const float* row_scales = args.scales + row * args.groups;
  const int32_t* sums = args.sums + row * args.groups;
  float* acc = args.acc + row * args.acc_stride + block * kOutputs;
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b) _mm512_store_ps(acc + r * args.acc_stride + b * kOutputs, _mm512_setzero_ps());
  }
  for (int64_t group = 0; group < args.groups; ++group, weights += kGroupBytes, codes += kGroup) {
    __m512i dot[R][B];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const __m512i first = start(sums[r * args.groups + group]);
      for (int b = 0; b < B; ++b) dot[r][b] = first;
    }
#pragma GCC unroll 16
    for (int step = 0; step < 16; ++step) {
      __m512i stored[B];
      for (int b = 0; b < B; ++b) stored[b] = _mm512_load_si512(weights + b * args.block_stride + 64 * step);
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {
        const __m512i four = broadcast4(codes + r * inputs + 4 * step);
        for (int b = 0; b < B; ++b) dot[r][b] = _mm512_dpbusd_epi32(dot[r][b], stored[b], four);
      }
    }
    __m512 weight_scale[B];
    for (int b = 0; b < B; ++b) weight_scale[b] = block_scales(scales + b * args.block_stride, group);
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
void linear_w8(const LinearQuantArgs& args) {
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

void use_linear_w8_avx512vnni(KernelTable& table) {
  table.linear_w8 = table.tuning.prefetch_past_page ? linear_w8<true> : linear_w8<false>;
}

}  // namespace tcim_lite::cpu
