// What the AMX kernels share. Everything has internal linkage.
#pragma once

#include "backends/cpu/kernels/linear/linear_avx512.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kTileBytes = 1024;
constexpr int kTileRows = 16;

// Tile t is rows[t] rows of 64 bytes.
template <int count>
void configure(const int (&rows)[count]) {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  } config;
  for (int tile = 0; tile < count; ++tile) {
    config.row_bytes[tile] = 64;
    config.rows[tile] = uint8_t(rows[tile]);
  }
  _tile_loadconfig(&config);
}

using W4 = ZmmFormat<WeightFormat::LinearW4>;
using W8 = ZmmFormat<WeightFormat::LinearW8>;

// Signed codes of a group as the tile unit reads them.
struct SignedW4 : W4 {
  // 16 times the code: (code + 8) in the upper nibble with its highest bit flipped.
  static void unpack(const uint8_t* from, int8_t* to) {
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
  static __m512 scales(const uint8_t* at) { return _mm512_mul_ps(W4::scales(at), _mm512_set1_ps(0x1p-4f)); }
};

struct SignedW8 : W8 {
  static void unpack(const uint8_t* from, int8_t* to) {
    const __m512i offset = _mm512_set1_epi8(char(0x80));
#pragma GCC unroll 16
    for (int step = 0; step < 16; ++step)
      _mm512_store_si512(to + 64 * step, _mm512_xor_si512(_mm512_load_si512(from + 64 * step), offset));
  }
};

}  // namespace
}  // namespace tcim_lite::cpu
