// Linear with quantised weights for AVX-512 without the dot product instructions: vpmaddubsw on zmm registers. It
// multiplies unsigned by signed bytes, adds the products of two inputs to 16 bits and saturates there.
#include "backends/cpu/kernels/linear/linear_avx512.h"

namespace tcim_lite::cpu {
namespace {

constexpr int kTileRows = 6;  // 6 x 2 sums of 16 bits and of 32, 2 codes, a broadcast, products: 28 of 32 registers
constexpr int kTileBlocks = 2;

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

// How far ahead R rows fetch their codes and scales, of one block; more come from the cache.
template <typename Format, int R, int B>
constexpr Distance kAhead = B > 1   ? Distance{}
                            : R > 2 ? Distance{8 * Format::kUnitBytes, 4 * Format::kUnitBytes}
                                    : Distance{4 * Format::kUnitBytes, 0};

// The codes of inputs 8 * step .. of a group of B blocks; `stride` bytes are between blocks.
template <typename Format, int R, int B>
__attribute__((always_inline)) inline void load_codes(const uint8_t* weights, int64_t stride, int step,
                                                      __m512i (&codes)[B][2]) {
  for (int i = 0; i < 2; ++i) fetch_codes<Format, kAhead<Format, R, B>>(weights, 2 * step + i);
  for (int b = 0; b < B; ++b) {
    Format::unpack(weights + b * stride, 2 * step, 0, codes[b]);
    settle(codes[b][0]);
    settle(codes[b][1]);
  }
}

// Adds the dots of R rows with B blocks in one group, exactly. weights: the group's codes in the first block; rows: the
// activations in the first row.
template <typename Format, int R, int B>
void dots_of_nibbles(const Tile& t, const int8_t* rows, const uint8_t* weights, int64_t stride, __m512i (&dot)[R][B]) {
  const __m512i ones = _mm512_set1_epi16(1);
#pragma GCC unroll 2
  for (int begin = 0; begin < int(Format::kInputs / 8); begin += kStepsOf16Bits) {
    __m512i pairs[R][B];
#pragma GCC unroll 4
    for (int step = begin; step < begin + kStepsOf16Bits; ++step) {
      __m512i stored[B][2];
      load_codes<Format, R, B>(weights, stride, step, stored);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const __m512i four = _mm512_set1_epi32(four_codes(rows + r * t.inputs + 8 * step + 4 * half));
#pragma GCC unroll 2
          for (int b = 0; b < B; ++b) {
            const Codes<Format> codes(stored[b][half]);
            if (step > begin || half > 0) {
              add_products(pairs[r][b], codes.size, codes.operand(four));
            } else {
              pairs[r][b] = _mm512_maddubs_epi16(codes.size, codes.operand(four));
              settle(pairs[r][b]);
            }
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) dot[r][b] = _mm512_add_epi32(dot[r][b], _mm512_madd_epi16(pairs[r][b], ones));
    }
  }
}

// Codes of 8 bits would saturate, so both sides are widened to 16 bits and multiplied with vpmaddwd: inputs 0 and 2 of
// four together, and 1 and 3, because those are one operation away from bytes.
template <typename Format, int R, int B>
void dots_of_words(const Tile& t, const int8_t* rows, const uint8_t* weights, int64_t stride, __m512i (&dot)[R][B]) {
  alignas(64) int16_t wide[R][2][kGroup / 2];
  for (int r = 0; r < R; ++r) {
    const __m512i bytes = _mm512_load_si512(rows + r * t.inputs);
    _mm512_store_si512(wide[r][0], _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8));
    _mm512_store_si512(wide[r][1], _mm512_srai_epi16(bytes, 8));
  }
  __asm__("" : "+m"(wide));                                      // broadcasts from memory need no port that multiplies
  for (int step = 0; step < int(Format::kInputs / 8); ++step) {  // unrolled, it takes gcc 12 three times as long
    __m512i bytes[B][2];
    load_codes<Format, R, B>(weights, stride, step, bytes);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; ++odd) {
        __m512i words[B];
        for (int b = 0; b < B; ++b) {
          words[b] = odd == 0 ? _mm512_and_si512(bytes[b][half], _mm512_set1_epi16(0xff))
                              : _mm512_srli_epi16(bytes[b][half], 8);
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

// R rows by B blocks; fp32 sums in args.acc. Returns where the fetches go on.
template <typename Format, int R, int B>
__attribute__((noinline)) const uint8_t* tile(const LinearQuantArgs& args, int64_t row, int64_t block, Ahead ahead) {
  const Tile t(args, row, block);
  const int64_t groups = args.groups * Format::kParts;
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b) _mm512_store_ps(t.acc + r * t.acc_stride + b * kBlockOutputs, _mm512_setzero_ps());
  }
  for (int64_t index = 0; index < groups; ++index) {
    const int64_t at = index / Format::kParts;  // of the activations
    const uint8_t* weights = t.weights + Format::codes_at(index);
    const uint8_t* scales = t.weights + Format::scales_at(groups, index);
    const int8_t* rows = t.codes + index * Format::kInputs;
    if constexpr (B == 1) prefetch_scales<Format, kAhead<Format, R, B>>(scales, args.block_stride);
    ahead.fetch();
    __m512i dot[R][B];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512i start = _mm512_set1_epi32(-t.sums[r * t.stride + at] * int32_t(Format::kLayout.code_offset));
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) dot[r][b] = start;
    }
    if constexpr (Format::kNibbles)
      dots_of_nibbles<Format, R, B>(t, rows, weights, args.block_stride, dot);
    else
      dots_of_words<Format, R, B>(t, rows, weights, args.block_stride, dot);
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) {
      const __m512 weight_scale = Format::scales(scales + b * args.block_stride);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512 scale = _mm512_mul_ps(weight_scale, _mm512_set1_ps(t.scales[r * t.stride + at]));
        float* sum = t.acc + r * t.acc_stride + b * kBlockOutputs;
        _mm512_store_ps(sum, _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][b]), scale, _mm512_load_ps(sum)));
      }
    }
  }
  return ahead.at;
}

// All rows of all blocks, whose codes come from memory.
template <typename Format>
void linear_of_few(const LinearQuantArgs& args) {
  prefetch_first_scales<Format>(args);
  run_tiles<kFewRows>(
      args, [&](auto count, int64_t row, int64_t block) { tile<Format, count.value, 1>(args, row, block, {}); });
}

template <typename Format>
void linear(const LinearQuantArgs& args) {
  constexpr int kFewest = 4;
  static_assert(kFewRows + 1 >= kTileRows + kFewest - 1);  // then no tile has fewer
  if (args.rows <= kFewRows) return linear_of_few<Format>(args);
  run_tiles_ahead<Format>(
      args, kTileBlocks, kTileRows,
      [&](int64_t row, int64_t rows, int64_t block, Ahead ahead) {
        return with_count<kTileRows, kFewest>(
            rows, [&](auto count) { return tile<Format, count.value, kTileBlocks>(args, row, block, ahead); });
      },
      [](int64_t) { return true; }, linear_of_few<Format>);
}

}  // namespace

void TCIM_LITE_USE(linear_quant)(KernelTable& table) {
  enter_quantised(table, [](auto format) { return linear<ZmmFormat<format.kValue>>; });
}

}  // namespace tcim_lite::cpu
