// Linear with quantised weights on AMX tiles, for the rows of one step of several slots. One tile product is up to 8
// rows by 16 outputs by the 64 inputs of a group; its int32 results go through memory to the vector units, which scale
// and add them in the reference's order (docs/numerics.md section 4) with the sums of a block in registers. Unpacking a
// group (4-bit weights; 8-bit ones are read from the packed block), its product and its sums belong to consecutive
// steps, so that each finds its data in place.
#include "backends/cpu/kernels/linear/linear_amx.h"

namespace tcim_lite::cpu {
namespace {

// kLag: steps from the first work on a group to its sums. kSlots: groups under way, more than one step's distance.
struct FewW4 : SignedW4 {
  static constexpr int kLag = 2, kSlots = 4;
  static constexpr int kFewFrom = 5;  // fewer rows do not pay for unpacking
  static constexpr Distance kAhead{8 * kUnitBytes, 2 * kUnitBytes};

  static void multiply() { _tile_dpbssd(0, 1, 2); }
  static __m512i dots(const int32_t* products, int32_t) { return _mm512_load_si512(products); }
};

struct FewW8 : W8 {
  static constexpr int kLag = 1, kSlots = 2;
  static constexpr int kFewFrom = 3;  // fewer rows are at the read rate on vpdpbusd
  static constexpr Distance kAhead{8 * kUnitBytes, 4 * kUnitBytes};

  static void multiply() { _tile_dpbsud(0, 1, 2); }
  // The stored codes are the codes plus 128.
  static __m512i dots(const int32_t* products, int32_t code_sum) {
    const __m512i excess = _mm512_slli_epi32(_mm512_set1_epi32(code_sum), 7);
    return _mm512_sub_epi32(_mm512_load_si512(products), excess);
  }
};

// A group of a block, counted on from one block to the next.
struct Position {
  int64_t block = 0, group = 0;

  void step(int64_t groups) {
    if (++group == groups) ++block, group = 0;
  }
};

template <typename Format, int R>
__attribute__((noinline)) void few_rows(const LinearQuantArgs& args) {
  constexpr bool kUnpacks = Format::kLag == 2;
  alignas(64) int8_t unpacked[kUnpacks ? Format::kSlots : 1][kTileBytes];
  alignas(64) int32_t products[Format::kSlots][R * kBlockOutputs];
  configure({R, R, 16});  // products, activations, weights
  Position first, second, third;
  __m512 sums[R];
  for (int r = 0; r < R; ++r) sums[r] = _mm512_setzero_ps();
  const uint8_t* newest = args.weights;  // codes of the group that was touched last
  const int64_t steps = args.blocks * args.groups;
  for (int64_t step = 0; step < steps + Format::kLag; ++step) {
    if (step < steps) {
      const uint8_t* block = args.weights + first.block * args.block_stride;
      newest = block + Format::codes_at(first.group);
      prefetch_scales<Format, Format::kAhead>(block + Format::scales_at(args.groups, first.group), args.block_stride);
      if constexpr (kUnpacks) Format::unpack(newest, unpacked[step % Format::kSlots]);
      first.step(args.groups);
    }
    constexpr int kMultiplied = Format::kLag - 1;
    if (step >= kMultiplied && step < steps + kMultiplied) {
      _tile_loadd(2, kUnpacks ? static_cast<const void*>(unpacked[(step - kMultiplied) % Format::kSlots]) : newest, 64);
      _tile_loadd(1, args.codes + second.group * kGroup, args.groups * kGroup);
      _tile_zero(0);
      Format::multiply();
      _tile_stored(0, products[(step - kMultiplied) % Format::kSlots], 64);
      second.step(args.groups);
    }
    if (step >= Format::kLag) {
      const uint8_t* block = args.weights + third.block * args.block_stride;
      const __m512 weight_scales = Format::scales(block + Format::scales_at(args.groups, third.group));
      const int32_t* row = products[(step - Format::kLag) % Format::kSlots];
      const float* scale = args.scales + third.group;
      const int32_t* code_sum = args.sums + third.group;
      // The cache lines of the codes are fetched between the sums, because fetching them all at once would delay the
      // next step.
      constexpr int kLinesAtOnce = Format::kLines / 8;
      const auto prefetch_lines = [&](int index) {
        for (int line = 0; line < kLinesAtOnce; ++line)
          prefetch<Format::kAhead>(newest + 64 * (kLinesAtOnce * index + line));
      };
      for (int index = R; index < 8; ++index) prefetch_lines(index);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        prefetch_lines(r);
        const __m512i dots = Format::dots(row + r * kBlockOutputs, code_sum[r * args.groups]);
        const __m512 scales = _mm512_mul_ps(weight_scales, _mm512_set1_ps(scale[r * args.groups]));
        sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), scales, sums[r]);
      }
      float* acc = args.acc + third.block * kBlockOutputs;
      third.step(args.groups);
      if (third.group == 0) {
        for (int r = 0; r < R; ++r) {
          _mm512_store_ps(acc + r * args.acc_stride, sums[r]);
          sums[r] = _mm512_setzero_ps();
        }
      }
    }
  }
  _tile_release();
}

template <typename Format>
void linear_few(const LinearQuantArgs& args) {
  with_count<kFewRows, Format::kFewFrom>(args.rows, [&](auto count) { few_rows<Format, count.value>(args); });
}

template <typename Format>
void use(KernelTable& table) {
  LinearKernels& kernels = table.linear[int(Format::kFormat)];
  kernels.few = linear_few<Format>;
  kernels.few_from = Format::kFewFrom;
}

}  // namespace

void TCIM_LITE_USE(linear_few)(KernelTable& table) {
  use<FewW4>(table);
  use<FewW8>(table);
}

}  // namespace tcim_lite::cpu
