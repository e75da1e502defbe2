// With vpdpbusd on ymm registers. The integer sum starts at -offset * sum(a), which undoes the offset of the stored
// codes.
#include "backends/cpu/kernels/linear_ymm.h"

namespace tcim_lite::cpu {
namespace {

constexpr int kTileRows = 6;  // 6 x 2 sums, 2 unpacked weights, a broadcast: 15 of 16 registers

// vpdpbusd takes five cycles and two start per cycle, so few rows spread the runs over more sums.
template <int R>
constexpr int kSets = R == 1   ? 4
                      : R == 2 ? 2
                               : 1;

// With several sets those of odd runs may be a multiple of the dot, which merge() divides by.
template <typename Format>
struct Codes {
  static constexpr bool kInPlace = Format::kNibbles && !Format::kE2m1;  // the odd ones 16 times as large

  static __m256i stored(const uint8_t* weights, int run, int half, bool in_place) {
    if (!kInPlace || run % 2 == 0 || !in_place) return Format::stored(weights, run, half);
    return _mm256_and_si256(Format::pairs(weights, run, half), _mm256_set1_epi8(char(0xf0)));
  }
  // vpdpbusd wants an unsigned operand, so the sign of a code goes to the activation.
  static __m256i add(__m256i sum, __m256i codes, __m256i a) {
    if constexpr (!Format::kE2m1) return _mm256_dpbusd_avx_epi32(sum, codes, a);
    return _mm256_dpbusd_avx_epi32(sum, _mm256_abs_epi8(codes), _mm256_sign_epi8(a, codes));
  }
  static __m256i merge(__m256i even, __m256i odd) {
    return _mm256_add_epi32(even, kInPlace ? _mm256_srai_epi32(odd, 4) : odd);
  }
};

template <typename Format, int R, bool Stream>
void dots(const Group<R>& group, __m256i (&dot)[R][2]) {
  using Unpack = Codes<Format>;
  __m256i sums[kSets<R>][R][2];
  for (int r = 0; r < R; ++r) {
    const __m256i start = _mm256_sub_epi32(_mm256_setzero_si256(), group.template excess<Format>(r));
    for (int set = 0; set < kSets<R>; ++set) {
      for (int half = 0; half < 2; ++half) sums[set][r][half] = set == 0 ? start : _mm256_setzero_si256();
    }
  }
  for_runs<Format, kCodesAhead<Format, R, Stream>>(group.weights, 0, int(Format::kInputs / 4), [&](int run) {
    __m256i stored[2] = {Unpack::stored(group.weights, run, 0, kSets<R> > 1),
                         Unpack::stored(group.weights, run, 1, kSets<R> > 1)};
    __asm__("" : "+x"(stored[0]), "+x"(stored[1]));  // or gcc 12 unpacks them again for some rows
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m256i four = _mm256_set1_epi32(four_codes(group.codes + r * group.inputs + 4 * run));
      for (int half = 0; half < 2; ++half) {
        __m256i& sum = sums[run % kSets<R>][r][half];
        sum = Unpack::add(sum, stored[half], four);
      }
    }
  });
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    for (int half = 0; half < 2; ++half) {
      for (int set = 2; set < kSets<R>; ++set)
        sums[set % 2][r][half] = _mm256_add_epi32(sums[set % 2][r][half], sums[set][r][half]);
      dot[r][half] = sums[0][r][half];
      if constexpr (kSets<R> > 1) dot[r][half] = Unpack::merge(dot[r][half], sums[1][r][half]);
    }
  }
}

template <typename Format>
void linear(const LinearQuantArgs& args) {
  if (args.rows > kFewRows) return linear_in_tiles<Format, kTileRows, false>(args);
  linear_of_few<Format, kTileRows>(args);
}

}  // namespace

void TCIM_LITE_USE(linear_quant)(KernelTable& table) {
  enter_quantised(table, [](auto format) { return linear<YmmFormat<format.kValue>>; });
}

}  // namespace tcim_lite::cpu
