// Linear with 8-bit weights on AMX tiles, for the rows of one step of several slots. A tile product is up to 8 rows by
// 16 outputs by the 64 inputs of a group, its weights straight from the packed block; its int32 results go through
// memory to the vector units, one group later, which scale and add them in the reference's order (numerics.md section
// 3) with the sums of a block in registers.
#include <immintrin.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kOutputs = 16;
constexpr int64_t kGroup = 64;
constexpr int64_t kGroupBytes = kGroup * 16;  // codes of one group of one block
constexpr int64_t kScaleBytes = 16;           // 16 int8 exponents

// Into the second cache, and from there into the first (benchmarks/notes/cpu-kernels.md).
void prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p + 8 * kGroupBytes), _MM_HINT_T1);
  _mm_prefetch(reinterpret_cast<const char*>(p + 4 * kGroupBytes), _MM_HINT_T0);
}

// 2^e of the 16 outputs.
__m512 load_scales(const uint8_t* at) {
  const __m128i exponents = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  const __m512i biased = _mm512_add_epi32(_mm512_cvtepi8_epi32(exponents), _mm512_set1_epi32(127));
  return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
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
  alignas(64) int32_t products[2][R * kOutputs];
  configure(R);
  const int64_t scales_at = args.groups * kGroupBytes;
  Position first, second;
  __m512 sums[R];
  for (int r = 0; r < R; ++r) sums[r] = _mm512_setzero_ps();
  const uint8_t* weights = args.weights;
  const int64_t steps = args.blocks * args.groups;
  for (int64_t step = 0; step <= steps; ++step) {
    if (step < steps) {
      const uint8_t* block = args.weights + first.block * args.block_stride;
      weights = block + first.group * kGroupBytes;
      _tile_loadd(2, weights, 64);
      _tile_loadd(1, args.codes + first.group * kGroup, args.groups * kGroup);
      _tile_zero(0);
      _tile_dpbsud(0, 1, 2);
      _tile_stored(0, products[step % 2], 64);
      _mm_prefetch(reinterpret_cast<const char*>(block + args.block_stride + scales_at + first.group * kScaleBytes),
                   _MM_HINT_T1);
      first.step(args.groups);
    }
    if (step == 0) continue;
    const __m512 weight_scales =
        load_scales(args.weights + second.block * args.block_stride + scales_at + second.group * kScaleBytes);
    const int32_t* row = products[(step - 1) % 2];
    const int64_t group = second.group;
    // The lines of the codes are fetched between the sums: all at once they would hold up what follows.
    for (int pair = R; pair < 8; ++pair) prefetch(weights + 128 * pair), prefetch(weights + 128 * pair + 64);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      prefetch(weights + 128 * r);
      prefetch(weights + 128 * r + 64);
      // The stored codes are 128 more than those meant.
      const __m512i excess = _mm512_slli_epi32(_mm512_set1_epi32(args.sums[r * args.groups + group]), 7);
      const __m512i dots = _mm512_sub_epi32(_mm512_load_si512(row + r * kOutputs), excess);
      const __m512 scales = _mm512_mul_ps(weight_scales, _mm512_set1_ps(args.scales[r * args.groups + group]));
      sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), scales, sums[r]);
    }
    float* acc = args.acc + second.block * kOutputs;
    second.step(args.groups);
    if (second.group == 0) {
      for (int r = 0; r < R; ++r) {
        _mm512_store_ps(acc + r * args.acc_stride, sums[r]);
        sums[r] = _mm512_setzero_ps();
      }
    }
  }
  _tile_release();
}

void linear_w8_few(const LinearQuantArgs& args) {
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

void use_linear_w8_few_amx(KernelTable& table) {
  table.linear_w8_few = linear_w8_few;
  table.w8_few_from = 3;  // fewer are at the read rate on vpdpbusd
}

}  // namespace tcim_lite::cpu
