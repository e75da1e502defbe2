// Linear with quantised weights on ymm registers. The integer sum starts at -offset * sum(a), which undoes the offset
// of the stored codes.
#include "backends/cpu/kernels/linear_x86.h"

namespace tcim_lite::cpu {
namespace {

constexpr int kTileRows = 6;  // 6 x 2 sums, 2 unpacked weights, a broadcast: 15 of 16 registers

__m256i load(const uint8_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }

// An unpacker gives the stored codes of inputs 4 * run .. of half the outputs of a group, and add() multiplies them. In
// place those of odd runs may be a multiple, which merge() divides by.
struct W4 : Packed<WeightFormat::LinearW4> {
  static constexpr int64_t kFarBytes = 4 * 1088;  // four units of two groups

  static __m256i stored(const uint8_t* weights, int run, int half, bool in_place) {
    const __m256i low_mask = _mm256_set1_epi8(0x0f), high_mask = _mm256_set1_epi8(char(0xf0));
    const __m256i pairs = load(weights + 64 * (run / 2) + 32 * half);
    if (run % 2 == 0) return _mm256_and_si256(pairs, low_mask);
    if (in_place) return _mm256_and_si256(pairs, high_mask);
    return _mm256_and_si256(_mm256_srli_epi16(pairs, 4), low_mask);
  }
  static __m256i add(__m256i sum, __m256i stored, __m256i a) { return _mm256_dpbusd_avx_epi32(sum, stored, a); }
  static __m256i merge(__m256i even, __m256i odd) { return _mm256_add_epi32(even, _mm256_srai_epi32(odd, 4)); }
  static __m256 scales(const uint8_t* at, int half) {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(at + 16 * half)));
  }
};

struct W8 : Packed<WeightFormat::LinearW8> {
  static constexpr int64_t kFarBytes = 0;

  static __m256i stored(const uint8_t* weights, int run, int half, bool) {
    return load(weights + 64 * run + 32 * half);
  }
  static __m256i add(__m256i sum, __m256i stored, __m256i a) { return _mm256_dpbusd_avx_epi32(sum, stored, a); }
  static __m256i merge(__m256i even, __m256i odd) { return _mm256_add_epi32(even, odd); }
  // 2^e.
  static __m256 scales(const uint8_t* at, int half) {
    const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at + 8 * half)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(wide, _mm256_set1_epi32(127)), 23));
  }
};

// E2M1, doubled. vpdpbusd wants an unsigned operand, so the sign goes to the activation.
struct Mxfp4 : Packed<WeightFormat::LinearMxfp4> {
  static constexpr int64_t kFarBytes = W4::kFarBytes;

  static __m256i stored(const uint8_t* weights, int run, int half, bool) {
    const __m128i codes = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(codes), W4::stored(weights, run, half, false));
  }
  static __m256i add(__m256i sum, __m256i codes, __m256i a) {
    return _mm256_dpbusd_avx_epi32(sum, _mm256_abs_epi8(codes), _mm256_sign_epi8(a, codes));
  }
  static __m256i merge(__m256i even, __m256i odd) { return _mm256_add_epi32(even, odd); }
  static __m256 scales(const uint8_t* at, int half) { return W8::scales(at, half); }
};

// vpdpbusd takes five cycles and two start per cycle, so few rows spread the runs over more sums.
template <int R>
constexpr int kSets = R == 1   ? 4
                      : R == 2 ? 2
                               : 1;

// R rows of one block. With Stream the weights come from memory and are fetched ahead.
template <typename Format, int R, bool Stream>
void tile(const LinearQuantArgs& args, int64_t row, int64_t block) {
  const Tile t(args, row, block);
  const int64_t groups = args.groups * Format::kParts;
  constexpr int kRuns = int(Format::kInputs / 4);
  for (int r = 0; r < R; ++r) {
    for (int half = 0; half < 2; ++half) _mm256_store_ps(t.acc + r * t.acc_stride + 8 * half, _mm256_setzero_ps());
  }
  for (int64_t group = 0; group < groups; ++group) {
    const uint8_t* weights = t.weights + Format::codes_at(group);
    const uint8_t* scales = t.weights + Format::scales_at(groups, group);
    const int8_t* codes = t.codes + group * Format::kInputs;
    if constexpr (Stream) prefetch_scales<Format, Format::kFarBytes>(scales, args.block_stride);
    __m256i sums[kSets<R>][R][2];
    for (int r = 0; r < R; ++r) {
      const int32_t excess = int32_t(Format::kLayout.code_offset) * t.sums[r * t.stride + group / Format::kParts];
      for (int set = 0; set < kSets<R>; ++set) {
        for (int half = 0; half < 2; ++half)
          sums[set][r][half] = set == 0 ? _mm256_set1_epi32(-excess) : _mm256_setzero_si256();
      }
    }
#pragma GCC unroll 16
    for (int run = 0; run < kRuns; ++run) {
      if (Stream && run % (kRuns / Format::kLines) == 0)
        prefetch<Format::kFarBytes>(weights + 64 * (run * Format::kLines / kRuns));
      __m256i stored[2] = {Format::stored(weights, run, 0, kSets<R> > 1),
                           Format::stored(weights, run, 1, kSets<R> > 1)};
      __asm__("" : "+x"(stored[0]), "+x"(stored[1]));  // or gcc 12 unpacks them again for some rows
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m256i four = _mm256_set1_epi32(four_codes(codes + r * t.inputs + 4 * run));
        for (int half = 0; half < 2; ++half) {
          __m256i& sum = sums[run % kSets<R>][r][half];
          sum = Format::add(sum, stored[half], four);
        }
      }
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m256 weight_scale = Format::scales(scales, half);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        for (int set = 2; set < kSets<R>; ++set)
          sums[set % 2][r][half] = _mm256_add_epi32(sums[set % 2][r][half], sums[set][r][half]);
        __m256i dot = sums[0][r][half];
        if constexpr (kSets<R> > 1) dot = Format::merge(dot, sums[1][r][half]);
        const __m256 row_scale = _mm256_set1_ps(t.scales[r * t.stride + group / Format::kParts]);
        const __m256 scale = _mm256_mul_ps(weight_scale, row_scale);
        float* sum = t.acc + r * t.acc_stride + 8 * half;
        _mm256_store_ps(sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, _mm256_load_ps(sum)));
      }
    }
  }
}

template <typename F>
constexpr TileKernel kStream[kTileRows + 1] = {nullptr,          tile<F, 1, true>, tile<F, 2, true>, tile<F, 3, true>,
                                               tile<F, 4, true>, tile<F, 5, true>, tile<F, 6, true>};
template <typename F>
constexpr TileKernel kTiles[kTileRows + 1] = {nullptr,           nullptr,           nullptr,          tile<F, 3, false>,
                                              tile<F, 4, false>, tile<F, 5, false>, tile<F, 6, false>};

template <typename Format>
void linear(const LinearQuantArgs& args) {
  if (args.rows > kTileRows) return run_tiles(args, kTileRows, kTiles<Format>);
  prefetch_first_scales<Format>(args);
  run_tiles(args, kTileRows, kStream<Format>);
}

}  // namespace

void TCIM_LITE_USE(linear_quant)(KernelTable& table) {
  table.linear[int(W4::kFormat)].quantised = linear<W4>;
  table.linear[int(W8::kFormat)].quantised = linear<W8>;
  table.linear[int(Mxfp4::kFormat)].quantised = linear<Mxfp4>;
}

}  // namespace tcim_lite::cpu
