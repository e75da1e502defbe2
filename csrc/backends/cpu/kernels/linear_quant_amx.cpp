// Linear with quantised weights on AMX tiles, for more rows than one weight stream can feed. One tile product is 16
// rows by 16 outputs by the 64 inputs of a group, so its int32 result is exactly the group's dot product; it goes
// through memory to the vector units, which scale and add it in the reference's order (numerics.md section 3).
#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kGroup = 64;
constexpr int64_t kTileRows = 16;
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kSpan = 16;  // groups unpacked at a time: 16 KiB of weights a block
constexpr int kBatch = 2;      // groups whose results wait for the vector units: 8 KiB

// Signed codes as the tile unit wants them, and fp32 scales, of `kSpan` groups of one block.
struct Unpacked {
  alignas(64) int8_t codes[kSpan * kTileBytes];
  alignas(64) float scales[kSpan * kOutputs];
};

struct W4 {
  // Groups lie in pairs: codes of both, then scales of both (graph/weight_format.h).
  static int64_t codes_at(int64_t group) { return group / 2 * 1088 + group % 2 * 512; }
  static int64_t scales_at(int64_t, int64_t group) { return group / 2 * 1088 + 1024 + group % 2 * 32; }

  static void unpack(const uint8_t* from, int8_t* to) {
    const __m512i low_mask = _mm512_set1_epi8(0x0f), offset = _mm512_set1_epi8(8);
#pragma GCC unroll 8
    for (int step = 0; step < 8; ++step) {
      const __m512i pairs = _mm512_load_si512(from + 64 * step);
      const __m512i low = _mm512_and_si512(pairs, low_mask);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(pairs, 4), low_mask);
      _mm512_store_si512(to + 128 * step, _mm512_sub_epi8(low, offset));
      _mm512_store_si512(to + 128 * step + 64, _mm512_sub_epi8(high, offset));
    }
  }
  static __m512 scales(const uint8_t* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
};

struct W8 {
  static int64_t codes_at(int64_t group) { return group * 1024; }
  static int64_t scales_at(int64_t groups, int64_t group) { return groups * 1024 + group * 16; }

  static void unpack(const uint8_t* from, int8_t* to) {
    const __m512i offset = _mm512_set1_epi8(char(0x80));
#pragma GCC unroll 16
    for (int step = 0; step < 16; ++step)
      _mm512_store_si512(to + 64 * step, _mm512_xor_si512(_mm512_load_si512(from + 64 * step), offset));
  }
  // 2^e for e in [-126, 127].
  static __m512 scales(const uint8_t* at) {
    const __m512i exponent = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(exponent, _mm512_set1_epi32(127)), 23));
  }
};

// A batch is two row tiles by two blocks, each loaded once for two products: results in tiles 0-3, activations in 4 and
// 5, weights in 6 and 7. The second row tile may have fewer rows, or none.
struct Rows {
  int64_t first, second;
};

void configure(Rows rows) {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {};
  } config;
  const auto first = uint8_t(rows.first), second = uint8_t(rows.second > 0 ? rows.second : 1);
  const uint8_t of_tiles[8] = {first, second, first, second, first, second, kTileRows, kTileRows};
  for (int tile = 0; tile < 8; ++tile) config.rows[tile] = of_tiles[tile];
  _tile_loadconfig(&config);
}

// Results of kBatch groups, [group][block][row tile][row][output].
using Dots = int32_t[kBatch][2][2][kTileBytes / 4];

// The products of one group. All loads come first: a load between two products waits for the one before it.
template <bool two_row_tiles, bool two_blocks>
void multiply(const int8_t* codes, int64_t stride, const Unpacked* weights, int64_t group,
              int32_t (*dots)[2][kTileBytes / 4]) {
  _tile_loadd(6, weights[0].codes + group * kTileBytes, 64);
  _tile_loadd(4, codes, stride);
  if constexpr (two_row_tiles) _tile_loadd(5, codes + kTileRows * stride, stride);
  if constexpr (two_blocks) _tile_loadd(7, weights[1].codes + group * kTileBytes, 64);
  _tile_zero(0);
  if constexpr (two_row_tiles) _tile_zero(1);
  if constexpr (two_blocks) _tile_zero(2);
  if constexpr (two_row_tiles && two_blocks) _tile_zero(3);
  _tile_dpbssd(0, 4, 6);
  if constexpr (two_row_tiles) _tile_dpbssd(1, 5, 6);
  if constexpr (two_blocks) _tile_dpbssd(2, 4, 7);
  if constexpr (two_row_tiles && two_blocks) _tile_dpbssd(3, 5, 7);
  _tile_stored(0, dots[0][0], 64);
  if constexpr (two_row_tiles) _tile_stored(1, dots[0][1], 64);
  if constexpr (two_blocks) _tile_stored(2, dots[1][0], 64);
  if constexpr (two_row_tiles && two_blocks) _tile_stored(3, dots[1][1], 64);
}

__m512 add_group(__m512 sum, const int32_t* dots, __m512 weight_scale, float row_scale) {
  const __m512 scale = _mm512_mul_ps(weight_scale, _mm512_set1_ps(row_scale));
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(dots)), scale, sum);
}

// Where the rows of a batch lie: their codes, scales and sums from the span's first group and the pair's first block.
struct Batch {
  const int8_t* codes;
  const float* scales;
  float* sums;
  int64_t codes_stride, scales_stride, sums_stride;
};

// One row tile and one block. `dots` are those of the first group.
template <int groups>
__attribute__((always_inline)) inline void add_tile(const Batch& batch, int64_t rows, int64_t half,
                                                    const Unpacked& weights, int64_t block, int64_t group,
                                                    const int32_t* dots) {
  constexpr int64_t kGroupDots = sizeof(Dots) / kBatch / sizeof(int32_t);
  __m512 weight_scales[groups];
  for (int g = 0; g < groups; ++g) weight_scales[g] = _mm512_load_ps(weights.scales + (group + g) * kOutputs);
  float* sums = batch.sums + half * kTileRows * batch.sums_stride + block * kOutputs;
  const float* scales = batch.scales + half * kTileRows * batch.scales_stride + group;
  const auto add_row = [&](int64_t row) __attribute__((always_inline)) {
    __m512 sum = _mm512_load_ps(sums);
    for (int g = 0; g < groups; ++g)
      sum = add_group(sum, dots + g * kGroupDots + row * kOutputs, weight_scales[g], scales[g]);
    _mm512_store_ps(sums, sum);
    sums += batch.sums_stride;
    scales += batch.scales_stride;
  };
  if (rows == kTileRows) {
#pragma GCC unroll 16
    for (int64_t row = 0; row < kTileRows; ++row) add_row(row);
  } else {
    for (int64_t row = 0; row < rows; ++row) add_row(row);
  }
}

template <int groups>
void add_groups(const Batch& batch, Rows rows, const Unpacked* weights, int64_t blocks, int64_t group,
                const Dots& dots) {
  for (int64_t block = 0; block < blocks; ++block) {
    add_tile<groups>(batch, rows.first, 0, weights[block], block, group, dots[0][block][0]);
    if (rows.second > 0) add_tile<groups>(batch, rows.second, 1, weights[block], block, group, dots[0][block][1]);
  }
}

template <bool two_row_tiles, bool two_blocks>
void run_batch(const Batch& batch, Rows rows, const Unpacked* weights, int64_t groups) {
  alignas(64) Dots dots;
  const auto products = [&](int64_t group, int g) {
    multiply<two_row_tiles, two_blocks>(batch.codes + group * kGroup, batch.codes_stride, weights, group, dots[g]);
  };
  int64_t group = 0;
  for (; group + kBatch <= groups; group += kBatch) {
    for (int g = 0; g < kBatch; ++g) products(group + g, g);
    add_groups<kBatch>(batch, rows, weights, 1 + two_blocks, group, dots);
  }
  for (; group < groups; ++group) {
    products(group, 0);
    add_groups<1>(batch, rows, weights, 1 + two_blocks, group, dots);
  }
}

template <typename Format>
void unpack(const LinearQuantArgs& args, int64_t block, int64_t begin, int64_t groups, Unpacked& to) {
  const uint8_t* from = args.weights + block * args.block_stride;
  for (int64_t group = 0; group < groups; ++group) {
    Format::unpack(from + Format::codes_at(begin + group), to.codes + group * kTileBytes);
    const __m512 scales = Format::scales(from + Format::scales_at(args.groups, begin + group));
    _mm512_store_ps(to.scales + group * kOutputs, scales);
  }
}

// `batches` batches of `rows` from row `first` on.
template <typename Format>
void run_rows(const LinearQuantArgs& args, int64_t first, int64_t batches, Rows rows) {
  Unpacked weights[2];
  const int64_t inputs = args.groups * kGroup;
  configure(rows);
  for (int64_t begin = 0; begin < args.groups; begin += kSpan) {
    const int64_t groups = args.groups - begin < kSpan ? args.groups - begin : kSpan;
    for (int64_t block = 0; block < args.blocks; block += 2) {
      const bool two_blocks = block + 1 < args.blocks;
      unpack<Format>(args, block, begin, groups, weights[0]);
      if (two_blocks) unpack<Format>(args, block + 1, begin, groups, weights[1]);
      const auto run = rows.second > 0 ? (two_blocks ? run_batch<true, true> : run_batch<true, false>)
                                       : (two_blocks ? run_batch<false, true> : run_batch<false, false>);
      for (int64_t index = 0; index < batches; ++index) {
        const int64_t row = first + index * 2 * kTileRows;
        run({args.codes + row * inputs + begin * kGroup, args.scales + row * args.groups + begin,
             args.acc + row * args.acc_stride + block * kOutputs, inputs, args.groups, args.acc_stride},
            rows, weights, groups);
      }
    }
  }
}

template <typename Format>
void many_rows(const LinearQuantArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    float* sums = args.acc + row * args.acc_stride;
    for (int64_t i = 0; i < args.blocks * kOutputs; i += 16) _mm512_store_ps(sums + i, _mm512_setzero_ps());
  }
  const int64_t batches = args.rows / (2 * kTileRows), rest = args.rows % (2 * kTileRows);
  if (batches > 0) run_rows<Format>(args, 0, batches, {kTileRows, kTileRows});
  if (rest > 0) {
    const int64_t full = rest < kTileRows ? rest : kTileRows;
    run_rows<Format>(args, args.rows - rest, 1, {full, rest - full});
  }
  _tile_release();
}

}  // namespace

void use_linear_quant_amx(KernelTable& table) {
  table.linear_w4_many = many_rows<W4>;
  table.linear_w8_many = many_rows<W8>;
  table.many_from = 16;  // fewer do not pay for unpacking
  table.many_rows = 256;
}

}  // namespace tcim_lite::cpu
