// For CPUs without the dot product instructions: vpmaddubsw, which multiplies unsigned by signed bytes, adds the
// products of two inputs to 16 bits and saturates there. Many rows share codes that are unpacked once.
#include "backends/cpu/kernels/linear_ymm.h"

namespace tcim_lite::cpu {
namespace {

// Stops gcc 12 from postponing the additions or repeating the unpacking, either of which makes it run out of registers.
inline void settle(__m256i& value) { __asm__("" : "+x"(value)); }

// sum + products, in two instructions: gcc 12 would add products up among themselves first and spill.
inline void add_products(__m256i& sum, __m256i codes, __m256i a) {
  __m256i products;
  __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(codes), "x"(a));
}

// Codes of 4 bits: eight sums of two products fit 16 bits, which are 32 inputs.
constexpr int kRunsOf16Bits = 8;

// How the codes of a run are multiplied by four activations.
template <WeightFormat F>
struct Codes;

template <>
struct Codes<W4::kFormat> {
  static_assert(kRunsOf16Bits * 2 * 15 * 128 <= 32767);
  explicit Codes(__m256i stored) : size(stored) {}
  __m256i operand(__m256i a) const { return a; }

  __m256i size;
};

// The sign of a code goes to the activation, which is never -128 with these weights.
template <>
struct Codes<Mxfp4::kFormat> {
  static_assert(kRunsOf16Bits * 2 * 12 * 127 <= 32767);
  explicit Codes(__m256i codes) : size(_mm256_abs_epi8(codes)), codes_(codes) {}
  __m256i operand(__m256i a) const { return _mm256_sign_epi8(a, codes_); }

  __m256i size;

 private:
  __m256i codes_;
};

template <typename Format, int R, bool Stream>
void dots_of_nibbles(const Group<R>& group, __m256i (&dot)[R][2]) {
  const __m256i ones = _mm256_set1_epi16(1);
  constexpr int kRuns = int(Format::kInputs / 4);
#pragma GCC unroll 2
  for (int begin = 0; begin < kRuns; begin += kRunsOf16Bits) {
    __m256i pairs[R][2];
    for_runs<Format, kCodesAhead<Format, R, Stream>>(group.weights, begin, kRunsOf16Bits, [&](int run) {
      __m256i stored[2] = {Format::stored(group.weights, run, 0), Format::stored(group.weights, run, 1)};
      settle(stored[0]);
      settle(stored[1]);
      const Codes<Format::kFormat> codes[2] = {Codes<Format::kFormat>(stored[0]), Codes<Format::kFormat>(stored[1])};
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m256i four = _mm256_set1_epi32(four_codes(group.codes + r * group.inputs + 4 * run));
        for (int half = 0; half < 2; ++half) {
          const __m256i a = codes[half].operand(four);
          if (run > begin) {
            add_products(pairs[r][half], codes[half].size, a);
          } else {
            pairs[r][half] = _mm256_maddubs_epi16(codes[half].size, a);
            settle(pairs[r][half]);
          }
        }
      }
    });
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      for (int half = 0; half < 2; ++half) {
        const __m256i wide = _mm256_madd_epi16(pairs[r][half], ones);
        dot[r][half] = begin == 0 ? wide : _mm256_add_epi32(dot[r][half], wide);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const __m256i excess = group.template excess<Format>(r);
    for (int half = 0; half < 2; ++half) dot[r][half] = _mm256_sub_epi32(dot[r][half], excess);
  }
}

// Codes of 8 bits would saturate, so both sides are widened to 16 bits and multiplied with vpmaddwd: inputs 0 and 2 of
// a run together, and 1 and 3, because those are one operation away from bytes.
template <int R, bool Stream>
void dots_of_words(const Group<R>& group, __m256i (&dot)[R][2]) {
  constexpr int kInputs = int(W8::kInputs);
  alignas(32) int16_t wide[R][2][kInputs / 2];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < kInputs; i += 32) {
      const auto* from = reinterpret_cast<const __m256i*>(group.codes + r * group.inputs + i);
      const __m256i bytes = _mm256_load_si256(from);
      const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), odd = _mm256_srai_epi16(bytes, 8);
      _mm256_store_si256(reinterpret_cast<__m256i*>(wide[r][0] + i / 2), even);
      _mm256_store_si256(reinterpret_cast<__m256i*>(wide[r][1] + i / 2), odd);
    }
  }
  __asm__("" : "+m"(wide));  // broadcasts from memory need no port that multiplies
  for_runs<W8, kCodesAhead<W8, R, Stream>>(group.weights, 0, kInputs / 4, [&](int run) {
    __m256i words[2][2];
    for (int half = 0; half < 2; ++half) {
      const __m256i bytes = W8::stored(group.weights, run, half);
      words[half][0] = _mm256_and_si256(bytes, _mm256_set1_epi16(0xff));
      words[half][1] = _mm256_srli_epi16(bytes, 8);
      settle(words[half][0]);
      settle(words[half][1]);
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      for (int odd = 0; odd < 2; ++odd) {
        int32_t two;
        __builtin_memcpy(&two, wide[r][odd] + 2 * run, sizeof(two));
        __m256i both = _mm256_set1_epi32(two);
        settle(both);
        for (int half = 0; half < 2; ++half) {
          const __m256i products = _mm256_madd_epi16(words[half][odd], both);
          dot[r][half] = run == 0 && odd == 0 ? products : _mm256_add_epi32(dot[r][half], products);
          settle(dot[r][half]);
        }
      }
    }
  });
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const __m256i excess = group.template excess<W8>(r);
    for (int half = 0; half < 2; ++half) dot[r][half] = _mm256_sub_epi32(dot[r][half], excess);
  }
}

template <typename Format, int R, bool Stream>
void dots(const Group<R>& group, __m256i (&dot)[R][2]) {
  if constexpr (Format::kFormat == WeightFormat::LinearW8)
    dots_of_words<R, Stream>(group, dot);
  else
    dots_of_nibbles<Format, R, Stream>(group, dot);
}

// Codes of a group as the multiplications take them.
template <typename Format>
struct Unpacked : Format {
  static constexpr int64_t kBytes = 16 * Format::kInputs;

  static __m256i stored(const uint8_t* codes, int run, int half) { return load(codes + 64 * run + 32 * half); }
  static void unpack(const uint8_t* weights, uint8_t* codes) {
    for_runs<Format, 0>(weights, 0, int(Format::kInputs / 4), [&](int run) {
      for (int half = 0; half < 2; ++half) {
        auto* to = reinterpret_cast<__m256i*>(codes + 64 * run + 32 * half);
        _mm256_store_si256(to, Format::stored(weights, run, half));
      }
    });
  }
};

// Groups [begin, end) of R rows of a block, whose codes are at `unpacked`.
template <typename Format, int R>
void span(const LinearQuantArgs& args, int64_t row, int64_t block, const uint8_t* unpacked, int64_t begin,
          int64_t end) {
  const Tile t(args, row, block);
  if (begin == 0) clear_sums<R>(t);
  for (int64_t index = begin; index < end; ++index) {
    __m256i dot[R][2];
    const uint8_t* codes = unpacked + (index - begin) * Unpacked<Format>::kBytes;
    dots<Unpacked<Format>, R, false>(group_of<Format, R>(t, codes, index), dot);
    add_dots<Format, R>(t, t.weights + Format::scales_at(args.groups * Format::kParts, index), index, dot);
  }
}

// The unpacked codes of a span, 8 KiB, stay in the first cache while all rows pass. More than kFewRows rows split
// evenly never give a tile of fewer than three.
template <typename Format, int most>
void linear_in_spans(const LinearQuantArgs& args) {
  constexpr int64_t kSpan = 8 * Format::kParts;
  constexpr decltype(&span<Format, 1>) kernels[] = {nullptr,         nullptr,         nullptr,
                                                    span<Format, 3>, span<Format, 4>, span<Format, most>};
  alignas(64) uint8_t unpacked[kSpan * Unpacked<Format>::kBytes];
  const int64_t tiles = (args.rows + most - 1) / most, groups = args.groups * Format::kParts;
  for (int64_t block = 0; block < args.blocks; ++block) {
    const uint8_t* weights = args.weights + block * args.block_stride;
    for (int64_t begin = 0; begin < groups; begin += kSpan) {
      const int64_t end = begin + kSpan < groups ? begin + kSpan : groups;
      for (int64_t index = begin; index < end; ++index) {
        uint8_t* codes = unpacked + (index - begin) * Unpacked<Format>::kBytes;
        Unpacked<Format>::unpack(weights + Format::codes_at(index), codes);
      }
      for (int64_t index = 0; index < tiles; ++index) {
        const int64_t row = args.rows * index / tiles, stop = args.rows * (index + 1) / tiles;
        kernels[stop - row](args, row, block, unpacked, begin, end);
      }
    }
  }
}

template <typename Format, int most>
void linear(const LinearQuantArgs& args) {
  if (args.rows <= kFewRows) return linear_of_few<Format, most>(args);
  if constexpr (Format::kFormat == WeightFormat::LinearW8)
    linear_in_tiles<Format, most, false>(args);  // unpacked words, twice as long as the codes, gain nothing
  else
    linear_in_spans<Format, most>(args);
}

}  // namespace

void TCIM_LITE_USE(linear_quant)(KernelTable& table) {
  enter_quantised(table, linear<W4, 5>, linear<W8, 4>, linear<Mxfp4, 4>);
}

}  // namespace tcim_lite::cpu
