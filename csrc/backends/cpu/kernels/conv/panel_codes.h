// Columns of a panel become codes, for a Conv with quantised weights; and the scales of those weights.
#pragma once

#include "backends/cpu/kernels/linear/linear_tile.h"
#include "backends/cpu/kernels/vector/simd.h"

namespace tcim_lite::cpu {
namespace {

using W8 = Packed<WeightFormat::LinearW8>;
constexpr int kSteps = int(kGroup / 4);

// 2^e of a stored exponent.
inline float scale_of(uint8_t exponent) {
  return __builtin_bit_cast(float, uint32_t(int32_t(int8_t(exponent)) + 127) << 23);
}

// One group of 16 columns; rows from `rows` on count as zeros. Whole: there are none.
template <bool Whole, typename Lanes>
void codes_of_group(const uint16_t* x, int64_t stride, int64_t rows, Lanes lanes, int32_t* codes, float* scale,
                    int32_t* start) {
  if constexpr (Whole) rows = kGroup;
  Ints magnitude = broadcast(0);  // magnitudes order like their bits
  for (int64_t row = 0; row < rows; ++row) magnitude = max(magnitude, bits(abs(load(x + row * stride, lanes))));
  const Ints least = broadcast(int32_t{(127 - 30) << 23}), most = broadcast(int32_t{(127 + 9) << 23});
  const Ints power = min(max(powers(magnitude) + broadcast(int32_t{-6 * (1 << 23)}), least), most);
  const Vec inverse = from_bits(broadcast(int32_t{254 << 23}) - power);
  const Vec low = broadcast(-127.0f), high = broadcast(127.0f);
  Ints total = broadcast(0);
  for (int64_t row = 0; row < kGroup; row += 4, codes += kPanel) {
    Ints four[4] = {broadcast(0), broadcast(0), broadcast(0), broadcast(0)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      if (row + i >= rows) continue;
      four[i] = nearest(min(max(load(x + (row + i) * stride, lanes) * inverse, low), high));
      total = total + four[i];
    }
    store(codes, low_bytes(four[0], four[1], four[2], four[3]));
  }
  store(scale, from_bits(power));
  store(start, broadcast(0) - shift_left<7>(total));
}

inline void panel_codes(const PanelCodesArgs& args) {
  for_lanes(args.cols, [&](int64_t column, auto lanes) {
    for (int64_t group = 0; group * kGroup < args.k; ++group) {
      const int64_t left = args.k - group * kGroup, at = group * kPanel + column;
      const uint16_t* x = args.x + group * kGroup * args.x_stride + column;
      int32_t* codes = args.codes + group * kSteps * kPanel + column;
      if (left >= kGroup)
        codes_of_group<true>(x, args.x_stride, kGroup, lanes, codes, args.scales + at, args.starts + at);
      else
        codes_of_group<false>(x, args.x_stride, left, lanes, codes, args.scales + at, args.starts + at);
    }
  });
}

}  // namespace
}  // namespace tcim_lite::cpu
