// Linear with 4-bit weights on AMX tiles, for the rows of one step of several slots. One tile product is up to 8 rows
// by 16 outputs by the 64 inputs of a group; its int32 results go through memory to the vector units, which scale and
// add them in the reference's order (numerics.md section 3) with the sums of a block in registers. Unpacking a group,
// its product and its sums belong to three consecutive steps, so that each finds its data in place.
#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kGroup = 64;
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kSlots = 4;  // groups under way: at least 2

// Groups lie in pairs: codes of both, then scales of both (graph/weight_format.h).
constexpr int64_t kPairBytes = 1088;
constexpr int64_t kFarBytes = 8 * kPairBytes, kNearBytes = 2 * kPairBytes;
int64_t codes_at(int64_t group) { return group / 2 * kPairBytes + group % 2 * 512; }
int64_t scales_at(int64_t group) { return group / 2 * kPairBytes + 1024 + group % 2 * 32; }

// Into the second cache, and from there into the first (benchmarks/notes/cpu-kernels.md).
void prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p + kFarBytes), _MM_HINT_T1);
  _mm_prefetch(reinterpret_cast<const char*>(p + kNearBytes), _MM_HINT_T0);
}

// 16 times the signed codes: (code + 8) in the upper nibble with its highest bit flipped.
void unpack(const uint8_t* from, int8_t* to) {
  const __m512i upper = _mm512_set1_epi8(char(0xf0)), flip = _mm512_set1_epi8(char(0x80));
  constexpr int kAndXor = 0x6a;
#pragma GCC unroll 8
  for (int step = 0; step < 8; ++step) {
    const __m512i pairs = _mm512_load_si512(from + 64 * step);
    const __m512i low = _mm512_ternarylogic_epi32(_mm512_slli_epi16(pairs, 4), upper, flip, kAndXor);
    _mm512_store_si512(to + 128 * step, low);
    _mm512_store_si512(to + 128 * step + 64, _mm512_ternarylogic_epi32(pairs, upper, flip, kAndXor));
  }
}

// d / 16, which undoes the 16 of the codes: exact, as d is 0 or at least 2^-24 and an activation's scale 2^-30.
__m512 load_scales(const uint8_t* at) {
  const __m512 d = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  return _mm512_mul_ps(d, _mm512_set1_ps(0x1p-4f));
}

// Tile 0: products; 1: activations; 2: weights.
void configure(int rows) {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64};
    uint8_t rows[16] = {};
  } config;
  config.rows[0] = config.rows[1] = uint8_t(rows);
  config.rows[2] = 16;
  _tile_loadconfig(&config);
}

// A group of a block, counted on from one block to the next.
struct Position {
  int64_t block = 0, group = 0;

  void step(int64_t groups) {
    if (++group == groups) ++block, group = 0;
  }
};

template <int R>
void few_rows(const LinearQuantArgs& args) {
  alignas(64) int8_t unpacked[kSlots][kTileBytes];
  alignas(64) int32_t products[kSlots][R * kOutputs];
  configure(R);
  Position first, second, third;
  __m512 sums[R];
  for (int r = 0; r < R; ++r) sums[r] = _mm512_setzero_ps();
  const uint8_t* unpacking = args.weights;
  const int64_t steps = args.blocks * args.groups;
  for (int64_t step = 0; step < steps + 2; ++step) {
    if (step < steps) {
      const uint8_t* block = args.weights + first.block * args.block_stride;
      prefetch(block + scales_at(first.group));
      unpacking = block + codes_at(first.group);
      unpack(unpacking, unpacked[step % kSlots]);
      first.step(args.groups);
    }
    if (step >= 1 && step <= steps) {
      _tile_loadd(2, unpacked[(step - 1) % kSlots], 64);
      _tile_loadd(1, args.codes + second.group * kGroup, args.groups * kGroup);
      _tile_zero(0);
      _tile_dpbssd(0, 1, 2);
      _tile_stored(0, products[(step - 1) % kSlots], 64);
      second.step(args.groups);
    }
    if (step >= 2) {
      const __m512 weight_scales = load_scales(args.weights + third.block * args.block_stride + scales_at(third.group));
      const int32_t* row = products[(step - 2) % kSlots];
      const float* scale = args.scales + third.group;
      // The lines of the codes are fetched between the sums: all at once they would hold up what follows.
      for (int line = R; line < 8; ++line) prefetch(unpacking + 64 * line);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        prefetch(unpacking + 64 * r);
        const __m512 dots = _mm512_cvtepi32_ps(_mm512_load_si512(row + r * kOutputs));
        const __m512 scales = _mm512_mul_ps(weight_scales, _mm512_set1_ps(scale[r * args.groups]));
        sums[r] = _mm512_fmadd_ps(dots, scales, sums[r]);
      }
      float* acc = args.acc + third.block * kOutputs;
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

void linear_w4_few(const LinearQuantArgs& args) {
  static_assert(kFewRows == 8);
  switch (args.rows) {
    case 1:
      return few_rows<1>(args);
    case 2:
      return few_rows<2>(args);
    case 3:
      return few_rows<3>(args);
    case 4:
      return few_rows<4>(args);
    case 5:
      return few_rows<5>(args);
    case 6:
      return few_rows<6>(args);
    case 7:
      return few_rows<7>(args);
    case 8:
      return few_rows<8>(args);
  }
}

}  // namespace

void use_linear_w4_few_amx(KernelTable& table) {
  table.linear_w4_few = linear_w4_few;
  table.w4_few_from = 5;  // fewer do not pay for unpacking
}

}  // namespace tcim_lite::cpu
