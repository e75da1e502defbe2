// Rows of activations become codes of a quantised Linear, in either format (docs/numerics.md section 3).
#include "backends/cpu/kernels/vector/simd.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kGroup = 64;
constexpr int kVecs = kGroup / kLanes;

// The 16 codes of vector `part` of a group, from x * 2^-e.

struct OurFormat {
  static constexpr int kLowest = -30;
  static Ints codes(Vec scaled, int) { return nearest(min(max(scaled, broadcast(-127.0f)), broadcast(127.0f))); }
};

// Adding 1.5 * 2^23 rounds to whole numbers, 1.5 * 2^24 to even ones, both with ties to even.
alignas(64) constexpr float kRounders[kLanes] = {0x1.8p24f, 0x1.8p23f, 0x1.8p24f, 0x1.8p23f, 0x1.8p24f, 0x1.8p23f,
                                                 0x1.8p24f, 0x1.8p23f, 0x1.8p24f, 0x1.8p23f, 0x1.8p24f, 0x1.8p23f,
                                                 0x1.8p24f, 0x1.8p23f, 0x1.8p24f, 0x1.8p23f};
alignas(64) constexpr float kHighest[kLanes] = {126, 127, 126, 127, 126, 127, 126, 127,
                                                126, 127, 126, 127, 126, 127, 126, 127};

struct HiddenExponent {
  static constexpr int kLowest = -20;
  static Ints codes(Vec scaled, int part) {
    const bool some_even = part % 2 != 0;  // elements 16, 18, .. 30 and 48, 50, .. 62
    const Vec rounder = some_even ? load(kRounders) : broadcast(0x1.8p23f);
    const Vec highest = some_even ? load(kHighest) : broadcast(127.0f);
    const Vec rounded = (scaled + rounder) - rounder;
    return nearest(min(max(rounded, broadcast(-128.0f)), highest));
  }
};

template <typename T, typename Format>
void quantize(const QuantizeArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    int8_t* codes = args.codes + row * args.groups * kGroup;
    for (int64_t group = 0; group < args.groups; ++group, x += kGroup, codes += kGroup) {
      Vec values[kVecs];
      Ints magnitude = broadcast(0);  // magnitudes order like their bits
      for (int i = 0; i < kVecs; ++i) {
        values[i] = load(x + kLanes * i);
        magnitude = max(magnitude, bits(abs(values[i])));
      }
      int exponent = (largest(magnitude) >> 23) - 127 - 6;
      exponent = exponent < Format::kLowest ? Format::kLowest : exponent;
      exponent = exponent > 9 ? 9 : exponent;
      const Vec inverse = from_bits(broadcast(int32_t{(127 - exponent) << 23}));
      Ints total = broadcast(0);
      for (int i = 0; i < kVecs; ++i) {
        const Ints code = Format::codes(values[i] * inverse, i);
        total = total + code;
        store_bytes(codes + kLanes * i, code);
      }
      args.scales[row * args.groups + group] = first_lane(from_bits(broadcast(int32_t{(exponent + 127) << 23})));
      args.sums[row * args.groups + group] = sum(total);
    }
  }
}

}  // namespace

void TCIM_LITE_USE(quantize)(KernelTable& table) {
  enter(table.quantize, quantize<uint16_t, OurFormat>, quantize<float, OurFormat>);
  table.quantize_hidden = quantize<uint16_t, HiddenExponent>;
}

}  // namespace tcim_lite::cpu
