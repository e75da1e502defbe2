// For CPUs without the dot product instructions. Codes of 4 bits take vpmaddubsw, which multiplies unsigned by signed
// bytes, adds the products of two inputs to 16 bits and saturates there; codes of 8 bits take vpmaddwd.
#include "backends/cpu/kernels/linear/linear_many_avx2.h"

namespace tcim_lite::cpu {
namespace {

// Stops gcc 12 from postponing the additions or repeating the unpacking, either of which makes it run out of registers.
inline void settle(__m256i& value) { __asm__("" : "+x"(value)); }

// sum + products and sum - products, in two instructions: gcc 12 would add products up among themselves first and
// spill.
inline void add_products(__m256i& sum, __m256i codes, __m256i a) {
  __m256i products;
  __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(codes), "x"(a));
}
inline void subtract_products(__m256i& sum, __m256i codes, __m256i a) {
  __m256i products;
  __asm__("vpmaddubsw %3, %2, %1\n\tvpsubw %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(codes), "x"(a));
}

// Calls use(run) for all runs of a group in a loop over `Unit` of them; codes are fetched ahead.
template <typename Format, Distance By, int Unit, typename Use>
__attribute__((always_inline)) inline void for_units(const uint8_t* weights, const Use& use) {
#pragma GCC unroll 1
  for (int first = 0; first < int(Format::kInputs / 4); first += Unit) {
    unrolled<Unit>([&](int i) __attribute__((always_inline)) {
      fetch_codes<Format, By>(weights, first + i);
      use(first + i);
    });
  }
}

constexpr int kLaneInputs = 2;  // of four that are multiplied together, how many a sum of 16 bits takes

// How the codes of a run are multiplied by four activations, and summed in 16 bits over a whole group.
template <typename Format, bool E2m1 = Format::kE2m1>
struct Codes;

// Stored codes are c + 8. Sums that begin with 8 times the activations and lose the products end as -c * a, which fits:
// what overflows on the way comes back.
template <typename Format>
struct Codes<Format, false> {
  static constexpr int kOffset = Format::kLayout.code_offset, kSign = -1, kMostRows = 5;
  static constexpr int64_t kLaneProducts = Format::kInputs * kLaneInputs / 4;
  static_assert(kOffset == 8 && 15 * 128 * kLaneInputs <= 32767);
  static_assert(kLaneProducts * 8 * 127 <= 32767 && kLaneProducts * 7 * 128 <= 32767);  // c -8, a 127; c 7, a -128
  static_assert(kLaneProducts * 8 * 128 <= 32768);                                      // c -8, a -128: -32768
  explicit Codes(__m256i stored) : size(stored) {}
  void multiply(__m256i& sum, __m256i a) const { subtract_products(sum, size, a); }

  __m256i size;
};

// The sign of a code goes to the activation, which is never -128 with these weights.
template <typename Format>
struct Codes<Format, true> {
  static constexpr int kOffset = 0, kSign = 1, kMostRows = 4;
  static_assert(Format::kInputs * kLaneInputs / 4 * 12 * 127 <= 32767);
  explicit Codes(__m256i codes) : size(_mm256_abs_epi8(codes)), codes_(codes) {}
  void multiply(__m256i& sum, __m256i a) const { add_products(sum, size, _mm256_sign_epi8(a, codes_)); }

  __m256i size;

 private:
  __m256i codes_;
};

template <typename Weights>
struct Nibbles {
  using Format = Weights;
  using Multiplied = Codes<Format>;
  static constexpr int kMost = Multiplied::kMostRows, kRuns = int(Format::kInputs / 4);
  // Rows from which codes are worth unpacking (benchmarks/notes/log/cpu-avx2-neon.md).
  static constexpr int64_t kManyFrom = Format::kE2m1 ? kFewRows + 1 : 21;

  // The offset of the codes times the activations of each lane of 16 bits.
  static int32_t start_of(const int8_t* codes) {
    if constexpr (Multiplied::kOffset == 0) return 0;
    __m256i sums = _mm256_setzero_si256();
    for (int64_t i = 0; i < Format::kInputs; i += 32) {
      const __m256i a = _mm256_load_si256(reinterpret_cast<const __m256i*>(codes + i));
      sums = _mm256_add_epi16(sums, _mm256_maddubs_epi16(_mm256_set1_epi8(Multiplied::kOffset), a));
    }
    __m128i four = _mm_add_epi16(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    four = _mm_add_epi16(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi16(four, _mm_shuffle_epi32(four, 0xb1)));
  }

  template <int R, Distance By>
  __attribute__((always_inline)) static void dots(const uint8_t* weights, const int8_t* inputs, int64_t input_stride,
                                                  const RowOfGroup* rows, int64_t stride, __m256i (&dot)[R][2]) {
    __m256i pairs[R][2];
    unrolled<R>([&](int r) { pairs[r][0] = pairs[r][1] = _mm256_set1_epi32(rows[r * stride].start); });
    // All runs at once: in a loop one or two rows take a tenth more, and groups of eight runs a thirtieth.
    for_units<Format, By, kRuns>(
        weights, [&](int run) __attribute__((always_inline)) {
          __m256i stored[2] = {Format::stored(weights, run, 0), Format::stored(weights, run, 1)};
          settle(stored[0]);
          settle(stored[1]);
          const Multiplied codes[2] = {Multiplied(stored[0]), Multiplied(stored[1])};
          unrolled<R>([&](int r) __attribute__((always_inline)) {
            const __m256i four = _mm256_set1_epi32(four_codes(inputs + r * input_stride + 4 * run));
            unrolled<2>([&](int half) __attribute__((always_inline)) { codes[half].multiply(pairs[r][half], four); });
          });
        });
    const __m256i signs = _mm256_set1_epi16(Multiplied::kSign);
    unrolled<R>(
        [&](int r) { unrolled<2>([&](int half) { dot[r][half] = _mm256_madd_epi16(pairs[r][half], signs); }); });
  }
};

// Codes of 8 bits would saturate, so both sides are widened to 16 bits and multiplied with vpmaddwd: inputs 0 and 2 of
// a run together, and 1 and 3, because those are one operation away from bytes.
template <typename Format, int R, bool Stream>
void dots(const Group<R>& group, __m256i (&dot)[R][2]) {
  constexpr int kInputs = int(Format::kInputs);
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
  unrolled<2 * R>([&](int i) {
    dot[i / 2][i % 2] = _mm256_sub_epi32(_mm256_setzero_si256(), group.template excess<Format>(i / 2));
  });
  constexpr bool kPages = R <= 2 && Format::kFetch != WeightFetch::IntoFirst;
  constexpr Distance kAhead = !Stream ? Distance{} : kPages ? kPagesAhead : kCodesAhead<Format, R>;
  for_units<Format, kAhead, 2>(
      group.weights, [&](int run) __attribute__((always_inline)) {
        __m256i words[2][2];
        for (int half = 0; half < 2; ++half) {
          const __m256i bytes = Format::stored(group.weights, run, half);
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
              dot[r][half] = _mm256_add_epi32(dot[r][half], _mm256_madd_epi16(words[half][odd], both));
              settle(dot[r][half]);
            }
          }
        }
      });
}

// Neither words unpacked once, twice as long as the codes, nor activations widened once gain anything.
template <typename Format>
void linear(const LinearQuantArgs& args) {
  constexpr int kMostRowsOfWords = 4;
  if constexpr (Format::kNibbles) {
    linear_of_few_nibbles<Nibbles<Format>>(args);
  } else if (args.rows <= kFewRows) {
    linear_of_few<Format, kMostRowsOfWords>(args);
  } else {
    linear_in_tiles<YmmFormat<Format::kFormat>, kMostRowsOfWords, false>(args);
  }
}

}  // namespace

void TCIM_LITE_USE(linear_quant)(KernelTable& table) {
  enter_quantised(table, [&](auto format) {
    return table.tuning.fetch == WeightFetch::IntoFirst ? linear<YmmFormat<format.kValue, WeightFetch::IntoFirst>>
                                                        : linear<YmmFormat<format.kValue>>;
  });
  for_quantised([&](auto format) {
    using Format = YmmFormat<format.kValue>;
    if constexpr (Format::kNibbles && kSumsSuffice<Format>)
      table.linear[int(format.kValue)].arranged = arranged_nibbles<Nibbles<Format>>(Nibbles<Format>::kManyFrom);
  });
  table.many_rows = kRowsOfMany;
}

}  // namespace tcim_lite::cpu
