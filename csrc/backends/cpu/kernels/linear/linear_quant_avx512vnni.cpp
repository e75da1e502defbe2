// Linear with quantised weights. Lanes run across the 16 outputs of a block, so the order of accumulation per output is
// the reference's.
#include "backends/cpu/kernels/linear/linear_avx512.h"

namespace tcim_lite::cpu {
namespace {

constexpr int kTileBlocks = 2;
constexpr int kTileRows = 12;  // 12 x 2 sums, 4 unpacked weight registers, 1-2 broadcasts, 1 mask: 31 of 32 registers
// Tiles of more rows unroll their steps: in a loop gcc 12 stores sums at each step, which costs a tenth to a fifth.
// Those of fewer rows do not, for half the time of the compiler.
constexpr int kLoopedRows = 9;

// sum + the products of four codes and activations of each output. vpdpbusd wants an unsigned operand: the sign of
// codes stored without an offset goes to the activation.
template <typename Format>
__m512i add(__m512i sum, __m512i codes, __m512i a) {
  if constexpr (Format::kLayout.code_offset != 0) return _mm512_dpbusd_epi32(sum, codes, a);
  const __m512i with_sign = _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(codes), _mm512_setzero_si512(), a);
  return _mm512_dpbusd_epi32(sum, _mm512_abs_epi8(codes), with_sign);
}

// How far ahead codes are fetched. PastPage: the hardware stops at the end of a page (WeightFetch). Else one or two
// rows of W8 fetch nothing: Zen 4 loses by any fetch of codes, while on Emerald Rapids it makes 1.1 of the read rate
// out of 0.76. With more rows the hardware falls behind everywhere (benchmarks/notes/log/cpu-kernels.md).
template <typename Format, int R, bool PastPage>
constexpr int64_t kFarBytes = (PastPage || R > 2            ? 8
                               : Format::kScalesBehindBlock ? 0
                                                            : 4) *
                              Format::kUnitBytes;
template <typename Format, int R, bool PastPage>
constexpr int64_t kNearBytes = PastPage || R > 2 ? 4 * Format::kUnitBytes : 0;

// Up to 8 rows: bound by the weight stream, one block at a time, fp32 sums in registers. Two integer sums per row halve
// the chain of dependent vpdpbusd.
template <typename Format, int R, bool PastPage>
void few_rows(const LinearQuantArgs& args) {
  constexpr Distance kAhead{kFarBytes<Format, R, PastPage>, kNearBytes<Format, R, PastPage>};
  constexpr int kSteps = int(Format::kInputs / 8), kStepLines = Format::kLines / kSteps;
  const int64_t groups = args.groups * Format::kParts;
  prefetch_first_scales<Format>(args);
  for (int64_t block = 0; block < args.blocks; ++block) {
    const Tile t(args, 0, block);
    __m512 acc[R];
    for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_ps();
    for (int64_t group = 0; group < groups; ++group) {
      const uint8_t* weights = t.weights + Format::codes_at(group);
      const uint8_t* scales = t.weights + Format::scales_at(groups, group);
      const int8_t* codes = t.codes + group * Format::kInputs;
      prefetch_scales<Format, kAhead>(scales, args.block_stride);
      __m512i first[R], second[R];
      for (int r = 0; r < R; ++r) {
        first[r] = start<Format>(t.sums[r * t.stride + group / Format::kParts]);
        second[r] = _mm512_setzero_si512();
      }
#pragma GCC unroll 8
      for (int step = 0; step < kSteps; ++step) {
        const uint8_t* from = weights + Format::kStepBytes * step;
        for (int line = 0; line < kStepLines; ++line) prefetch<kAhead>(from + 64 * line);
        __m512i even, odd;
        Format::unpack_in_place(from, even, odd);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const int8_t* a = codes + r * t.inputs + 8 * step;
          first[r] = add<Format>(first[r], even, broadcast4(a));
          second[r] = add<Format>(second[r], odd, broadcast4(a + 4));
        }
      }
      const __m512 weight_scale = Format::scales(scales);
      for (int r = 0; r < R; ++r) {
        const __m512i dot = Format::merge(first[r], second[r]);
        const __m512 row_scale = _mm512_set1_ps(t.scales[r * t.stride + group / Format::kParts]);
        acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(weight_scale, row_scale), acc[r]);
      }
    }
    for (int r = 0; r < R; ++r) _mm512_store_ps(t.acc + r * t.acc_stride, acc[r]);
  }
}

// What the sums of R rows begin with, and what is taken from them. The scale 2^e of a row need not be multiplied: a sum
// that begins with the bits of the float 1.5 * 2^(23 + e) ends as those of 2^e * (1.5 * 2^23 + dot), because |dot| is
// below 2^22, and one subtraction, which is exact, leaves 2^e * dot.
template <typename Format, int R>
struct Starts {
  static constexpr int64_t kGroups = 16;  // of activations

  void take(const Tile& t, int64_t begin) {
    const int64_t left = t.stride - begin;
    const auto here = __mmask16(left < kGroups ? (1u << left) - 1 : ~0u);
    for (int r = 0; r < R; ++r) {
      const __m512 row_scales = _mm512_maskz_loadu_ps(here, t.scales + r * t.stride + begin);
      const __m512i code_sums = _mm512_maskz_loadu_epi32(here, t.sums + r * t.stride + begin);
      const __m512 origin = _mm512_mul_ps(row_scales, _mm512_set1_ps(1.5f * (1 << 23)));
      _mm512_store_ps(origins[r], origin);
      _mm512_store_si512(bits[r], _mm512_sub_epi32(_mm512_castps_si512(origin), excess<Format>(code_sums)));
    }
  }

  alignas(64) float origins[R][kGroups];
  alignas(64) int32_t bits[R][kGroups];
};

// R rows by two blocks: int32 sums of one group in registers, fp32 sums in args.acc, which stays in the first cache.
// Returns where the fetches go on.
template <typename Format, int R>
const uint8_t* tile(const LinearQuantArgs& args, int64_t row, int64_t block, Ahead ahead) {
  constexpr int B = kTileBlocks;
  const Tile t(args, row, block);
  constexpr int kSteps = int(Format::kInputs / 8);
  const int64_t groups = args.groups * Format::kParts;
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b) _mm512_store_ps(t.acc + r * t.acc_stride + b * kBlockOutputs, _mm512_setzero_ps());
  }
  Starts<Format, R> starts;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t at = group / Format::kParts % starts.kGroups;
    if (group % (starts.kGroups * Format::kParts) == 0) starts.take(t, group / Format::kParts);
    const uint8_t* weights = t.weights + Format::codes_at(group);
    const uint8_t* scales = t.weights + Format::scales_at(groups, group);
    const int8_t* codes = t.codes + group * Format::kInputs;
    ahead.fetch();
    __m512 weight_scale[B];
    for (int b = 0; b < B; ++b) weight_scale[b] = Format::scales(scales + b * args.block_stride);
    __m512i dot[R][B];
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const __m512i start = _mm512_set1_epi32(starts.bits[r][at]);
      for (int b = 0; b < B; ++b) dot[r][b] = start;
    }
    const auto finish = [&](int r) __attribute__((always_inline)) {
      const __m512 origin = _mm512_set1_ps(starts.origins[r][at]);
      for (int b = 0; b < B; ++b) {
        float* sum = t.acc + r * t.acc_stride + b * kBlockOutputs;
        const __m512 scaled_dot = _mm512_sub_ps(_mm512_castsi512_ps(dot[r][b]), origin);
        _mm512_store_ps(sum, _mm512_fmadd_ps(scaled_dot, weight_scale[b], _mm512_load_ps(sum)));
      }
    };
    // A row is finished behind the products of the next one. If all rows were finished behind the last product, the
    // pipes that multiply would wait (benchmarks/notes/log/cpu-avx512.md).
    const auto add_step = [&](int step) __attribute__((always_inline)) {
      __m512i first[B], second[B];
      for (int b = 0; b < B; ++b)
        Format::unpack(weights + b * args.block_stride + Format::kStepBytes * step, first[b], second[b]);
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {
        const __m512i even = broadcast4(codes + r * t.inputs + 8 * step);
        for (int b = 0; b < B; ++b) dot[r][b] = add<Format>(dot[r][b], first[b], even);
        const __m512i odd = broadcast4(codes + r * t.inputs + 8 * step + 4);
        for (int b = 0; b < B; ++b) dot[r][b] = add<Format>(dot[r][b], second[b], odd);
        if (step == kSteps - 1 && r > 0) finish(r - 1);
      }
    };
    if constexpr (R > kLoopedRows) {
      unrolled<kSteps>(add_step);
    } else {
      for (int step = 0; step < kSteps; ++step) add_step(step);
    }
    finish(R - 1);
  }
  return ahead.at;
}

template <typename F, bool PastPage>
constexpr void (*kFewRowsKernels[kFewRows + 1])(const LinearQuantArgs&) = {nullptr,
                                                                           few_rows<F, 1, PastPage>,
                                                                           few_rows<F, 2, PastPage>,
                                                                           few_rows<F, 3, PastPage>,
                                                                           few_rows<F, 4, PastPage>,
                                                                           few_rows<F, 5, PastPage>,
                                                                           few_rows<F, 6, PastPage>,
                                                                           few_rows<F, 7, PastPage>,
                                                                           few_rows<F, 8, PastPage>};

// [rows - 6]; more than kFewRows rows split evenly never give a tile of fewer.
template <typename F>
constexpr decltype(&tile<F, 6>) kTiles[] = {tile<F, 6>,  tile<F, 7>,  tile<F, 8>, tile<F, 9>,
                                            tile<F, 10>, tile<F, 11>, tile<F, 12>};

// More than kFewRows rows of one block, as parts of few.
template <typename Format, bool PastPage>
void few_at_a_time(const LinearQuantArgs& args, int64_t block) {
  const int64_t parts = (args.rows + kFewRows - 1) / kFewRows;
  for (int64_t index = 0; index < parts; ++index) {
    const int64_t row = args.rows * index / parts, rows = args.rows * (index + 1) / parts - row;
    const Tile t(args, row, block);
    kFewRowsKernels<Format, PastPage>[rows](
        {t.weights, args.block_stride, 1, args.groups, t.codes, t.scales, t.sums, rows, t.acc, t.acc_stride});
  }
}

template <typename Format, bool PastPage>
void linear(const LinearQuantArgs& args) {
  if (args.rows <= kFewRows) return kFewRowsKernels<Format, PastPage>[args.rows](args);
  const int64_t tiles = (args.rows + kTileRows - 1) / kTileRows;
  int64_t block = 0;
  for (; block + kTileBlocks <= args.blocks; block += kTileBlocks) {
    if (!scales_fit<Format>(args, block, kTileBlocks)) {
      for (int b = 0; b < kTileBlocks; ++b) few_at_a_time<Format, PastPage>(args, block + b);
      continue;
    }
    const int64_t parts = tiles * args.groups * Format::kParts, lines = kTileBlocks * args.block_stride / kLineBytes;
    // Behind the last blocks lie often those of the next call.
    Ahead ahead{args.weights + (block + kTileBlocks) * args.block_stride, (lines + parts - 1) / parts};
    for (int64_t index = 0; index < tiles; ++index) {
      const int64_t row = args.rows * index / tiles, end = args.rows * (index + 1) / tiles;
      ahead.at = kTiles<Format>[end - row - 6](args, row, block, ahead);
    }
  }
  if (block < args.blocks) few_at_a_time<Format, PastPage>(args, block);
}

}  // namespace

void TCIM_LITE_USE(linear_quant)(KernelTable& table) {
  enter_quantised(table, [&](auto format) {
    using Format = ZmmFormat<format.kValue>;
    return table.tuning.fetch == WeightFetch::PastPage ? linear<Format, true> : linear<Format, false>;
  });
}

}  // namespace tcim_lite::cpu
