// For CPUs without the dot product instructions: vpmaddubsw multiplies unsigned by signed bytes, adds the products of
// two inputs to 16 bits and saturates there.
#include "backends/cpu/kernels/linear/linear_bytes_avx2.h"
#include "backends/cpu/kernels/linear/linear_many_avx2.h"

namespace tcim_lite::cpu {
namespace {

// As add_products(), but less the products.
inline void subtract_products(__m256i& sum, __m256i codes, __m256i a) {
  __m256i products;
  __asm__("vpmaddubsw %3, %2, %1\n\tvpsubw %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(codes), "x"(a));
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
    unrolled<kRuns>([&](int run) __attribute__((always_inline)) {
      fetch_codes<Format, By>(weights, run);
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

template <typename Format>
void linear(const LinearQuantArgs& args) {
  if constexpr (Format::kNibbles)
    linear_of_few_nibbles<Nibbles<Format>>(args);
  else
    linear_of_bytes<Format>(args);
}

}  // namespace

void TCIM_LITE_USE(linear_quant)(KernelTable& table) {
  const auto by_fetch = [&](auto format, const auto& use) {
    return table.tuning.fetch == WeightFetch::IntoFirst ? use(YmmFormat<format.kValue, WeightFetch::IntoFirst>())
                                                        : use(YmmFormat<format.kValue>());
  };
  enter_quantised(table, [&](auto format) { return by_fetch(format, [](auto f) { return linear<decltype(f)>; }); });
  for_quantised([&](auto format) {
    ArrangedKernels& arranged = table.linear[int(format.kValue)].arranged;
    using Format = YmmFormat<format.kValue>;
    if constexpr (!Format::kNibbles)
      arranged = by_fetch(format, [](auto f) { return arranged_bytes<decltype(f)>(); });
    else if constexpr (kSumsSuffice<Format>)
      arranged = arranged_nibbles<Nibbles<Format>>(Nibbles<Format>::kManyFrom);
  });
  table.many_rows = kRowsOfMany;
}

}  // namespace tcim_lite::cpu
