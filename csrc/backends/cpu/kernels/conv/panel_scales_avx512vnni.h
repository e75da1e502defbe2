// Scales of a panel's groups, all powers of two: those of weights, and how those of columns are left out of products.
#pragma once

#include "backends/cpu/kernels/conv/panel_codes.h"

namespace tcim_lite::cpu {
namespace {

// Of the outputs of a block, groups [first, end).
struct BlockScales {
  static constexpr int64_t kGroups = 8;  // at most
  // Times the scale of a column, 2^-30 to 2^9, they are within the range of floats.
  static constexpr int kLeast = -126 + 30, kMost = 127 - 9;

  BlockScales(const uint8_t* block, int64_t groups, int64_t first, int64_t end) {
    const uint8_t* exponents = block + W8::scales_at(groups, first);
    __m128i lowest = _mm_setzero_si128(), highest = lowest;
    for (int64_t i = 0; i < (end - first) * kBlockOutputs; i += kBlockOutputs) {
      const __m128i stored = _mm_loadu_si128(reinterpret_cast<const __m128i*>(exponents + i));
      store(of + i, from_bits(shift_left<23>(Ints{_mm512_cvtepi8_epi32(stored)} + broadcast(127))));
      lowest = _mm_min_epi8(lowest, stored), highest = _mm_max_epi8(highest, stored);
    }
    outside = _mm_movemask_epi8(_mm_or_si128(_mm_cmpgt_epi8(_mm_set1_epi8(kLeast), lowest),
                                             _mm_cmpgt_epi8(highest, _mm_set1_epi8(kMost)))) != 0;
  }

  alignas(64) float of[kGroups * kBlockOutputs];  // [groups, outputs]
  bool outside;
};

// The scale 2^e of a column need not be multiplied: a sum of codes that begins with the bits of the float
// 1.5 * 2^(23 + e) ends as those of 2^e * (1.5 * 2^23 + dot), because |dot| is below 2^22, and one subtraction, which
// is exact, leaves 2^e * dot.
inline Ints origin_of(Vec scale) { return bits(scale) + broadcast(int32_t{(23 << 23) + (1 << 22)}); }

}  // namespace
}  // namespace tcim_lite::cpu
