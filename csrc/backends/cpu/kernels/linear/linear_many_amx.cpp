// Linear with quantised weights on AMX tiles, for more rows than one weight stream can feed. One tile product is 16
// rows by 16 outputs by the 64 inputs of a group, so its int32 result is exactly the group's dot product; it goes
// through memory to the vector units, which scale and add it in the reference's order (docs/numerics.md section 4).
#include "backends/cpu/kernels/linear/linear_amx.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kSpan = 16;  // groups unpacked at a time: 16 KiB of weights a block
constexpr int kBatch = 2;      // groups whose results wait for the vector units: 8 KiB

// Signed codes as the tile unit reads them, and fp32 scales, of `kSpan` groups of one block.
struct Unpacked {
  alignas(64) int8_t codes[kSpan * kTileBytes];
  alignas(64) float scales[kSpan * kBlockOutputs];
};

// A batch is two row tiles by two blocks, each loaded once for two products: results in tiles 0-3, activations in 4 and
// 5, weights in 6 and 7. The second row tile may have fewer rows, or none.
struct Rows {
  int64_t first, second;
};

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
  for (int g = 0; g < groups; ++g) weight_scales[g] = _mm512_load_ps(weights.scales + (group + g) * kBlockOutputs);
  float* sums = batch.sums + half * kTileRows * batch.sums_stride + block * kBlockOutputs;
  const float* scales = batch.scales + half * kTileRows * batch.scales_stride + group;
  const auto add_row = [&](int64_t row) __attribute__((always_inline)) {
    __m512 sum = _mm512_load_ps(sums);
    for (int g = 0; g < groups; ++g)
      sum = add_group(sum, dots + g * kGroupDots + row * kBlockOutputs, weight_scales[g], scales[g]);
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
    _mm512_store_ps(to.scales + group * kBlockOutputs, scales);
  }
}

// `batches` batches of `rows` from row `first` on.
template <typename Format>
void run_rows(const LinearQuantArgs& args, int64_t first, int64_t batches, Rows rows) {
  Unpacked weights[2];
  const int64_t inputs = args.groups * kGroup;
  const int first_rows = int(rows.first), second_rows = rows.second > 0 ? int(rows.second) : 1;
  configure({first_rows, second_rows, first_rows, second_rows, first_rows, second_rows, kTileRows, kTileRows});
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
             args.acc + row * args.acc_stride + block * kBlockOutputs, inputs, args.groups, args.acc_stride},
            rows, weights, groups);
      }
    }
  }
}

template <typename Format>
void many_rows(const LinearQuantArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    float* sums = args.acc + row * args.acc_stride;
    for (int64_t i = 0; i < args.blocks * kBlockOutputs; i += 16) _mm512_store_ps(sums + i, _mm512_setzero_ps());
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

void TCIM_LITE_USE(linear_many)(KernelTable& table) {
  table.linear[int(SignedW4::kFormat)].many = many_rows<SignedW4>;
  table.linear[int(SignedW8::kFormat)].many = many_rows<SignedW8>;
  table.many_from = 16;  // fewer do not pay for unpacking
  table.many_rows = 256;
}

}  // namespace tcim_lite::cpu
