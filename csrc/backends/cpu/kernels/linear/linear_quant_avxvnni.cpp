// With vpdpbusd on ymm registers. The integer sum starts at -offset * sum(a), which undoes the offset of the stored
// codes.
#include "backends/cpu/kernels/linear/linear_ymm.h"

namespace tcim_lite::cpu {
namespace {

constexpr int kTileRows = 6;  // 6 x 2 sums, 2 unpacked weights, a broadcast: 15 of 16 registers
// Up to here a Linear waits for its weights alone. More rows may be two tiles, which share the fetches of a block.
constexpr int64_t kStreamRows = 5;

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
  for_runs<Format, Stream ? kCodesAhead<Format, R> : Distance{}>(
      group.weights, 0, int(Format::kInputs / 4), [&](int run) {
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

// As on zmm registers: sums that begin with the bits of 1.5 * 2^(23 + e) end as those of 2^e * (1.5 * 2^23 + dot).
template <typename Format, int R>
struct Starts {
  static constexpr int64_t kGroups = 16;  // of activations

  void take(const Tile& t, int64_t begin) {
    const int64_t left = t.stride - begin, count = left < kGroups ? left : kGroups;
    for (int r = 0; r < R; ++r) {
      const float* scales = t.scales + r * t.stride + begin;
      const int32_t* sums = t.sums + r * t.stride + begin;
      for (int64_t i = 0; i < count; ++i) {
        origins[r][i] = scales[i] * (1.5f * (1 << 23));
        bits[r][i] = __builtin_bit_cast(int32_t, origins[r][i]) - sums[i] * Format::kLayout.code_offset;
      }
    }
  }

  float origins[R][kGroups];
  int32_t bits[R][kGroups];
};

// R rows of one block, of more than kStreamRows. Each is finished behind the last products of the next one. Returns
// where the fetches go on.
template <typename Format, int R>
const uint8_t* tile_of_many(const LinearQuantArgs& args, int64_t row, int64_t block, Ahead ahead) {
  constexpr int kRuns = int(Format::kInputs / 4);
  const Tile t(args, row, block);
  const int64_t groups = args.groups * Format::kParts;
  clear_sums<R>(t);
  Starts<Format, R> starts;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t at = group / Format::kParts % starts.kGroups;
    if (group % (starts.kGroups * Format::kParts) == 0) starts.take(t, group / Format::kParts);
    const uint8_t* weights = t.weights + Format::codes_at(group);
    const int8_t* inputs = t.codes + group * Format::kInputs;
    ahead.fetch();
    alignas(32) float scales[kBlockOutputs];
    for (int half = 0; half < 2; ++half)
      _mm256_store_ps(scales + 8 * half, Format::scales(t.weights + Format::scales_at(groups, group), half));
    __asm__("" : "+m"(scales));  // read from there: the sums take the registers
    __m256i dot[R][2];
    unrolled<2 * R>([&](int i) { dot[i / 2][i % 2] = _mm256_set1_epi32(starts.bits[i / 2][at]); });
    const auto finish = [&](int r) __attribute__((always_inline)) {
      const __m256 origin = _mm256_set1_ps(starts.origins[r][at]);
      unrolled<2>([&](int half) __attribute__((always_inline)) {
        float* sum = t.acc + r * t.acc_stride + 8 * half;
        const __m256 scaled_dot = _mm256_sub_ps(_mm256_castsi256_ps(dot[r][half]), origin);
        _mm256_store_ps(sum, _mm256_fmadd_ps(scaled_dot, _mm256_load_ps(scales + 8 * half), _mm256_load_ps(sum)));
      });
    };
    unrolled<kRuns>([&](int run) __attribute__((always_inline)) {
      __m256i codes[2] = {Format::stored(weights, run, 0), Format::stored(weights, run, 1)};
      __asm__("" : "+x"(codes[0]), "+x"(codes[1]));  // or gcc 12 unpacks them again for some rows
      unrolled<R>([&](int r) __attribute__((always_inline)) {
        const __m256i four = _mm256_set1_epi32(four_codes(inputs + r * t.inputs + 4 * run));
        for (int half = 0; half < 2; ++half) dot[r][half] = Codes<Format>::add(dot[r][half], codes[half], four);
        if (run == kRuns - 1 && r > 0) finish(r - 1);
      });
    });
    finish(R - 1);
  }
  return ahead.at;
}

template <typename Format>
void linear_of_many(const LinearQuantArgs& args) {
  static_assert(kTileRows == 6 && kStreamRows >= 2);  // so no tile has fewer than three rows
  constexpr decltype(&tile_of_many<Format, 3>) kernels[] = {tile_of_many<Format, 3>, tile_of_many<Format, 4>,
                                                            tile_of_many<Format, 5>, tile_of_many<Format, 6>};
  const int64_t tiles = (args.rows + kTileRows - 1) / kTileRows, parts = tiles * args.groups * Format::kParts;
  const int64_t lines = args.block_stride / kLineBytes;
  for (int64_t block = 0; block < args.blocks; ++block) {
    if (!scales_fit<Format>(args, block, 1)) {
      linear_of_few<Format, kTileRows>(one_block(args, block));
      continue;
    }
    Ahead ahead{args.weights + (block + 1) * args.block_stride, (lines + parts - 1) / parts};
    for (int64_t index = 0; index < tiles; ++index) {
      const int64_t row = args.rows * index / tiles, end = args.rows * (index + 1) / tiles;
      ahead.at = kernels[end - row - 3](args, row, block, ahead);
    }
  }
}

template <typename Format>
void linear(const LinearQuantArgs& args) {
  using OfMany = YmmFormat<Format::kFormat>;  // whose fetches do not depend on the CPU
  if (args.rows <= (Format::kE2m1 ? kFewRows : kStreamRows)) return linear_of_few<Format, kTileRows>(args);
  if constexpr (Format::kE2m1)
    linear_in_tiles<OfMany, kTileRows, false>(args);  // signs take registers, so the other tile gains nothing
  else
    linear_of_many<OfMany>(args);
}

}  // namespace

void TCIM_LITE_USE(linear_quant)(KernelTable& table) {
  enter_quantised(table, [&](auto format) {
    return table.tuning.fetch == WeightFetch::IntoFirst ? linear<YmmFormat<format.kValue, WeightFetch::IntoFirst>>
                                                        : linear<YmmFormat<format.kValue>>;
  });
}

}  // namespace tcim_lite::cpu
