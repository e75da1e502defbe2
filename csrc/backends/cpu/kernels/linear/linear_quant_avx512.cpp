// Linear with quantised weights for AVX-512 without the dot product instructions: vpmaddubsw on zmm registers. It
// multiplies unsigned by signed bytes, adds the products of two inputs to 16 bits and saturates there. Many rows share
// codes that are unpacked once.
#include "backends/cpu/kernels/linear/linear_avx512.h"

namespace tcim_lite::cpu {
namespace {

constexpr int kTileRows = 6;  // 6 x 2 sums of 16 bits and of 32, 2 codes, a broadcast, products: 28 of 32 registers
constexpr int kTileBlocks = 2;

inline __m512i broadcast4(const int8_t* a) { return _mm512_set1_epi32(four_codes(a)); }

// The integer sum of a row begins at -offset * sum(a).
template <typename Format>
inline __m512i start(int32_t code_sum) {
  return _mm512_set1_epi32(-code_sum * int32_t(Format::kLayout.code_offset));
}

// Stops gcc 12 from postponing the additions or repeating the unpacking, either of which makes it run out of registers.
inline void settle(__m512i& value) { __asm__("" : "+v"(value)); }

// sum + products, in two instructions: gcc 12 would add products up among themselves first and spill.
inline void add_products(__m512i& sum, __m512i codes, __m512i a) {
  __m512i products;
  __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+v"(sum), "=&v"(products) : "v"(codes), "v"(a));
}

// Codes of 4 bits: eight sums of two products fit 16 bits, which are 32 inputs, four steps of eight.
constexpr int kStepsOf16Bits = 4;

// How the codes of four inputs are multiplied by their activations.
template <typename Format, bool E2m1 = Format::kE2m1>
struct Codes {
  static_assert(kStepsOf16Bits * 4 * 15 * 128 <= 32767);
  explicit Codes(__m512i stored) : size(stored) {}
  __m512i operand(__m512i a) const { return a; }

  __m512i size;
};

// The sign of a code goes to the activation, which is never -128 with these weights.
template <typename Format>
struct Codes<Format, true> {
  static_assert(kStepsOf16Bits * 4 * 12 * 127 <= 32767);
  explicit Codes(__m512i codes) : size(_mm512_abs_epi8(codes)), negative_(_mm512_movepi8_mask(codes)) {}
  __m512i operand(__m512i a) const { return _mm512_mask_sub_epi8(a, negative_, _mm512_setzero_si512(), a); }

  __m512i size;

 private:
  __mmask64 negative_;
};

// How far ahead R rows fetch their codes and scales.
template <typename Format, int R>
constexpr Distance kAhead{(R > 2 ? 8 : 4) * Format::kUnitBytes, R > 2 ? 4 * Format::kUnitBytes : 0};

// Stream: fetches the codes of a step of eight inputs ahead.
template <typename Format, int R, bool Stream>
__attribute__((always_inline)) inline void fetch_step(const uint8_t* weights, int step) {
  constexpr Distance kBy = Stream ? kAhead<Format, R> : Distance{};
  for (int i = 0; i < 2; ++i) fetch_codes<Format, kBy>(weights, 2 * step + i);
}

// Calls use(step) for steps [begin, begin + count), unrolled.
template <typename Format, int R, bool Stream, typename Use>
__attribute__((always_inline)) inline void for_steps(const uint8_t* weights, int begin, int count, Use use) {
#pragma GCC unroll 8
  for (int step = begin; step < begin + count; ++step) {
    fetch_step<Format, R, Stream>(weights, step);
    use(step);
  }
}

// Codes of a group as packed, and as the multiplications take them: of inputs 0..3 and 4..7 of a step.
template <typename Format>
struct PackedCodes {
  using Of = Format;
  static void load(const uint8_t* group, int step, __m512i& first, __m512i& second) {
    __m512i codes[2];
    Format::unpack(group, 2 * step, 0, codes);
    settle(first = codes[0]);
    settle(second = codes[1]);
  }
};

template <typename Format>
struct UnpackedCodes {
  using Of = Format;
  static constexpr int64_t kBytes = 16 * Format::kInputs;

  static void load(const uint8_t* group, int step, __m512i& first, __m512i& second) {
    first = _mm512_load_si512(group + 128 * step);
    second = _mm512_load_si512(group + 128 * step + 64);
  }
  static void unpack(const uint8_t* packed, uint8_t* group) {
    for (int step = 0; step < int(Format::kInputs / 8); ++step) {
      __m512i codes[2];
      Format::unpack(packed, 2 * step, 0, codes);
      _mm512_store_si512(group + 128 * step, codes[0]);
      _mm512_store_si512(group + 128 * step + 64, codes[1]);
    }
  }
};

// Adds the dots of R rows with B blocks in one group, exactly. weights: the group's codes in the first block, those of
// the next are `stride` further; rows: the activations in the first row.
template <typename Source, int R, int B, bool Stream>
void dots_of_nibbles(const Tile& t, const int8_t* rows, const uint8_t* weights, int64_t stride, __m512i (&dot)[R][B]) {
  using Format = typename Source::Of;
  const __m512i ones = _mm512_set1_epi16(1);
#pragma GCC unroll 2
  for (int begin = 0; begin < int(Format::kInputs / 8); begin += kStepsOf16Bits) {
    __m512i pairs[R][B];
    for_steps<Format, R, Stream>(weights, begin, kStepsOf16Bits, [&](int step) {
      __m512i stored[2][B];
      for (int b = 0; b < B; ++b) Source::load(weights + b * stride, step, stored[0][b], stored[1][b]);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const __m512i four = broadcast4(rows + r * t.inputs + 8 * step + 4 * half);
#pragma GCC unroll 2
          for (int b = 0; b < B; ++b) {
            const Codes<Format> codes(stored[half][b]);
            if (step > begin || half > 0) {
              add_products(pairs[r][b], codes.size, codes.operand(four));
            } else {
              pairs[r][b] = _mm512_maddubs_epi16(codes.size, codes.operand(four));
              settle(pairs[r][b]);
            }
          }
        }
      }
    });
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) dot[r][b] = _mm512_add_epi32(dot[r][b], _mm512_madd_epi16(pairs[r][b], ones));
    }
  }
}

// Codes of 8 bits would saturate, so both sides are widened to 16 bits and multiplied with vpmaddwd: inputs 0 and 2 of
// four together, and 1 and 3, because those are one operation away from bytes.
template <typename Source, int R, int B, bool Stream>
void dots_of_words(const Tile& t, const int8_t* rows, const uint8_t* weights, int64_t stride, __m512i (&dot)[R][B]) {
  using Format = typename Source::Of;
  alignas(64) int16_t wide[R][2][kGroup / 2];
  for (int r = 0; r < R; ++r) {
    const __m512i bytes = _mm512_load_si512(rows + r * t.inputs);
    _mm512_store_si512(wide[r][0], _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8));
    _mm512_store_si512(wide[r][1], _mm512_srai_epi16(bytes, 8));
  }
  __asm__("" : "+m"(wide));                                      // broadcasts from memory need no port that multiplies
  for (int step = 0; step < int(Format::kInputs / 8); ++step) {  // unrolled, it takes gcc 12 three times as long
    fetch_step<Format, R, Stream>(weights, step);
    __m512i bytes[2][B];
    for (int b = 0; b < B; ++b) Source::load(weights + b * stride, step, bytes[0][b], bytes[1][b]);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; ++odd) {
        __m512i words[B];
        for (int b = 0; b < B; ++b) {
          words[b] = odd == 0 ? _mm512_and_si512(bytes[half][b], _mm512_set1_epi16(0xff))
                              : _mm512_srli_epi16(bytes[half][b], 8);
          settle(words[b]);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          int32_t two;
          __builtin_memcpy(&two, wide[r][odd] + 4 * step + 2 * half, sizeof(two));
          __m512i both = _mm512_set1_epi32(two);
          settle(both);
#pragma GCC unroll 2
          for (int b = 0; b < B; ++b) {
            dot[r][b] = _mm512_add_epi32(dot[r][b], _mm512_madd_epi16(words[b], both));
            settle(dot[r][b]);
          }
        }
      }
    }
  }
}

// Adds group `index` of R rows and B blocks to the fp32 sums, which stay in memory.
template <typename Source, int R, int B, bool Stream>
__attribute__((always_inline)) inline void add_group(const Tile& t, int64_t index, const uint8_t* weights,
                                                     int64_t stride, const uint8_t* scales, int64_t scale_stride) {
  using Format = typename Source::Of;
  const int64_t at = index / Format::kParts;  // of the activations
  __m512i dot[R][B];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const __m512i zero = start<Format>(t.sums[r * t.stride + at]);
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) dot[r][b] = zero;
  }
  const int8_t* rows = t.codes + index * Format::kInputs;
  if constexpr (Format::kNibbles)
    dots_of_nibbles<Source, R, B, Stream>(t, rows, weights, stride, dot);
  else
    dots_of_words<Source, R, B, Stream>(t, rows, weights, stride, dot);
#pragma GCC unroll 2
  for (int b = 0; b < B; ++b) {
    const __m512 weight_scale = Format::scales(scales + b * scale_stride);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512 scale = _mm512_mul_ps(weight_scale, _mm512_set1_ps(t.scales[r * t.stride + at]));
      float* sum = t.acc + r * t.acc_stride + b * kBlockOutputs;
      _mm512_store_ps(sum, _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][b]), scale, _mm512_load_ps(sum)));
    }
  }
}

template <int R, int B>
void clear_sums(const Tile& t) {
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b) _mm512_store_ps(t.acc + r * t.acc_stride + b * kBlockOutputs, _mm512_setzero_ps());
  }
}

// Up to kFewRows rows of one block, whose codes come from memory.
template <typename Format, int R>
void few_rows(const LinearQuantArgs& args, int64_t row, int64_t block) {
  const Tile t(args, row, block);
  const int64_t groups = args.groups * Format::kParts;
  clear_sums<R, 1>(t);
  for (int64_t index = 0; index < groups; ++index) {
    const uint8_t* scales = t.weights + Format::scales_at(groups, index);
    prefetch_scales<Format, kAhead<Format, R>>(scales, args.block_stride);
    add_group<PackedCodes<Format>, R, 1, true>(t, index, t.weights + Format::codes_at(index), 0, scales, 0);
  }
}

// Groups [begin, end) of R rows and two blocks, whose codes are unpacked: those of the second are `stride` further.
template <typename Format, int R>
void span(const LinearQuantArgs& args, int64_t row, int64_t block, const uint8_t* codes, int64_t stride, int64_t begin,
          int64_t end) {
  using Source = UnpackedCodes<Format>;
  constexpr int B = kTileBlocks;
  const Tile t(args, row, block);
  if (begin == 0) clear_sums<R, B>(t);
  for (int64_t index = begin; index < end; ++index, codes += Source::kBytes) {
    const uint8_t* scales = t.weights + Format::scales_at(args.groups * Format::kParts, index);
    add_group<Source, R, B, false>(t, index, codes, stride, scales, args.block_stride);
  }
}

// All rows of two blocks. More than kFewRows of them, split evenly, never give a tile of fewer than four.
// Meanwhile the packed codes at `next`, so many bytes of each block, are fetched.
template <typename Format>
void rows_of_span(const LinearQuantArgs& args, int64_t block, const uint8_t* codes, int64_t stride, int64_t begin,
                  int64_t end, const uint8_t* next, int64_t next_bytes) {
  static_assert(kTileRows == 6 && kFewRows >= kTileRows);
  constexpr decltype(&span<Format, 4>) kernels[] = {span<Format, 4>, span<Format, 5>, span<Format, 6>};
  const int64_t tiles = (args.rows + kTileRows - 1) / kTileRows;
  for (int64_t index = 0; index < tiles; ++index) {
    for (int b = 0; b < kTileBlocks; ++b) prefetch_part(next + b * args.block_stride, next_bytes, index, tiles);
    const int64_t row = args.rows * index / tiles, stop = args.rows * (index + 1) / tiles;
    kernels[stop - row - 4](args, row, block, codes, stride, begin, end);
  }
}

// Codes of 8 bits need no unpacking. Those of 4 bits are unpacked for some groups at a time: their codes, 8 KiB, stay
// in the first cache while all rows pass.
template <typename Format>
void many_rows(const LinearQuantArgs& args, int64_t block) {
  constexpr int B = kTileBlocks;
  const uint8_t* weights = args.weights + block * args.block_stride;
  const int64_t groups = args.groups * Format::kParts;
  if constexpr (!Format::kNibbles) {
    rows_of_span<Format>(args, block, weights + Format::codes_at(0), args.block_stride, 0, groups,
                         weights + B * args.block_stride, args.block_stride);
  } else {
    constexpr int64_t kSpan = 8 / B * Format::kParts, kBytes = kSpan * UnpackedCodes<Format>::kBytes;
    alignas(64) uint8_t unpacked[B * kBytes];
    for (int64_t begin = 0; begin < groups; begin += kSpan) {
      const int64_t end = begin + kSpan < groups ? begin + kSpan : groups;
      for (int b = 0; b < B; ++b) {
        uint8_t* to = unpacked + b * kBytes;
        for (int64_t index = begin; index < end; ++index, to += UnpackedCodes<Format>::kBytes)
          UnpackedCodes<Format>::unpack(weights + b * args.block_stride + Format::codes_at(index), to);
      }
      const uint8_t* next = end < groups ? weights + Format::codes_at(end) : weights + B * args.block_stride;
      rows_of_span<Format>(args, block, unpacked, kBytes, begin, end, next, Format::codes_at(kSpan));
    }
  }
}

// All rows of all blocks, whose codes come from memory.
template <typename Format>
void linear_of_few(const LinearQuantArgs& args) {
  constexpr TileKernel kernels[kFewRows + 1] = {nullptr,
                                                few_rows<Format, 1>,
                                                few_rows<Format, 2>,
                                                few_rows<Format, 3>,
                                                few_rows<Format, 4>,
                                                few_rows<Format, 5>,
                                                few_rows<Format, 6>,
                                                few_rows<Format, 7>,
                                                few_rows<Format, 8>};
  prefetch_first_scales<Format>(args);
  run_tiles(args, kFewRows, kernels);
}

template <typename Format>
void linear(const LinearQuantArgs& args) {
  if (args.rows <= kFewRows) return linear_of_few<Format>(args);
  int64_t block = 0;
  for (; block + kTileBlocks <= args.blocks; block += kTileBlocks) many_rows<Format>(args, block);
  if (block < args.blocks) linear_of_few<Format>(some_blocks(args, block, 1));
}

}  // namespace

void TCIM_LITE_USE(linear_quant)(KernelTable& table) {
  enter_quantised(table, [](auto format) { return linear<ZmmFormat<format.kValue>>; });
}

}  // namespace tcim_lite::cpu
