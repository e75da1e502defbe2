// What kernels of quantised Linears share on every instruction set: the packed formats as types, and where the rows and
// sums of a tile lie. A kernel is one loop over a format's unpacker, which each kind of vector register has once for
// all formats. Everything has internal linkage.
#pragma once

#include <cstdint>

#include "backends/cpu/kernel_table.h"
#include "graph/weight_format.h"

namespace tcim_lite::cpu {
namespace {

// Base of the unpackers. Groups are those that share a scale of weights, kParts of them a scale of activations.
template <WeightFormat F>
struct Packed {
  static constexpr WeightFormat kFormat = F;
  static constexpr WeightLayout kLayout = layout_of(F);
  static constexpr int64_t kInputs = kLayout.scale_inputs;
  static constexpr int kLines = int(line_bytes(kLayout, kInputs) / kLineBytes);
  static constexpr int kStepBytes = int(kLineBytes) * kLines / int(kInputs / 8);  // of the codes of eight inputs
  static constexpr int kParts = int(kGroup / kInputs);
  static constexpr bool kNibbles = code_bits(kLayout) == 4;                   // else bytes
  static constexpr bool kE2m1 = kNibbles && kLayout.code_offset == 0;         // the codes have a sign
  static constexpr bool kHalfScales = kLayout.scale_dtype == DType::Float16;  // else exponents
  static constexpr bool kScalesBehindBlock = kLayout.unit_inputs == 0;        // a stream of memory of their own
  // What the hardware fetches as one, about 1 KiB; prefetch distances are multiples.
  static constexpr int64_t kUnitBytes =
      kScalesBehindBlock ? 1024 : codes_offset(kLayout, kLayout.unit_inputs / kLayout.scale_inputs);

  static int64_t codes_at(int64_t group) { return codes_offset(kLayout, group); }
  static int64_t scales_at(int64_t groups, int64_t group) { return scales_offset(kLayout, groups * kInputs, group); }
};

// Rows of one block. Row r and group g: codes + r * inputs + g * kInputs; the scale and the sum of the activations are
// at [r * stride + g / kParts].
struct Tile {
  Tile(const LinearQuantArgs& args, int64_t row, int64_t block)
      : inputs(args.groups * kGroup),
        stride(args.groups),
        acc_stride(args.acc_stride),
        weights(args.weights + block * args.block_stride),
        codes(args.codes + row * inputs),
        scales(args.scales + row * stride),
        sums(args.sums + row * stride),
        acc(args.acc + row * acc_stride + block * kBlockOutputs) {}

  int64_t inputs, stride, acc_stride;
  const uint8_t* weights;
  const int8_t* codes;
  const float* scales;
  const int32_t* sums;
  float* acc;
};

// Blocks [block, block + count).
inline LinearQuantArgs some_blocks(const LinearQuantArgs& args, int64_t block, int64_t count) {
  LinearQuantArgs some = args;
  some.weights += block * args.block_stride;
  some.acc += block * kBlockOutputs;
  some.blocks = count;
  return some;
}

constexpr int64_t kManyRows = 64;  // at a time, unless a set says otherwise

template <WeightFormat F>
struct FormatConstant {
  static constexpr WeightFormat kValue = F;
};

// Calls use(FormatConstant) for every quantised format.
template <int Code = 0, typename Use>
void for_quantised(const Use& use) {
  if constexpr (Code < kWeightFormats) {
    if constexpr (is_quantized(WeightFormat(Code))) use(FormatConstant<WeightFormat(Code)>());
    for_quantised<Code + 1>(use);
  }
}

// The sums of activations that undo an offset of the codes are those of 64, so a format with an offset and smaller
// groups keeps the kernel of ref.
template <typename Format>
constexpr bool kSumsSuffice = Format::kParts == 1 || Format::kLayout.code_offset == 0;

// Enters a set's Linear of every quantised format: kernel_of(FormatConstant). What else suited the kernels that it
// replaces is reset.
template <typename KernelOf>
void enter_quantised(KernelTable& table, const KernelOf& kernel_of) {
  for_quantised([&](auto format) {
    using Format = Packed<format.kValue>;
    if constexpr (kSumsSuffice<Format>) {
      LinearKernels& kernels = table.linear[int(format.kValue)];
      kernels.quantised = kernel_of(format);
      kernels.arranged = {};
    }
  });
  table.many_rows = kManyRows;
}

// use(first row, how many) for rows in tiles of at most `most`, split evenly: with more than one, none has fewer than
// half.
template <typename Use>
__attribute__((always_inline)) inline void for_tiles(int64_t rows, int64_t most, const Use& use) {
  const int64_t tiles = (rows + most - 1) / most;
  for (int64_t index = 0; index < tiles; ++index) {
    const int64_t first = rows * index / tiles;
    use(first, rows * (index + 1) / tiles - first);
  }
}

// use(Number) of `count`, which is First to Last. Kernels that it calls are never inlined: in one function with the
// others they would share what gcc decides about registers.
template <int Last, int First = 1, typename Use>
__attribute__((always_inline)) inline auto with_count(int64_t count, const Use& use) {
  if constexpr (First < Last) {
    if (count != First) return with_count<Last, First + 1>(count, use);
  }
  return use(Number<First>{});
}

// tile(Number, row, block) for all rows of each block, in tiles of at most Most.
template <int Most, typename Tile>
void run_tiles(const LinearQuantArgs& args, const Tile& tile) {
  for (int64_t block = 0; block < args.blocks; ++block) {
    for_tiles(args.rows, Most,
              [&](int64_t row, int64_t rows) { with_count<Most>(rows, [&](auto count) { tile(count, row, block); }); });
  }
}

}  // namespace
}  // namespace tcim_lite::cpu
