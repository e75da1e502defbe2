#include <bit>
#include <cmath>

#include "backends/cpu/reference/element.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kGroup = 64;

float power_of_two(int exponent) { return std::bit_cast<float>(uint32_t(exponent + 127) << 23); }

// Nearest integer, ties to even, for |x| <= 2^22: adding 1.5 * 2^23 leaves no fraction bits.
float round_even(float x) { return (x + 12582912.0f) - 12582912.0f; }

struct OurFormat {
  static constexpr int kLowest = -30;
  static int8_t code(float scaled, int64_t) {
    scaled = scaled < -127.0f ? -127.0f : scaled;
    scaled = scaled < 127.0f ? scaled : 127.0f;  // a NaN ends as 127: the conversion below stays defined
    return int8_t(round_even(scaled));
  }
};

// Elements 16, 18, .. 30 of every 32 have even codes.
struct HiddenExponent {
  static constexpr int kLowest = -20;
  static int8_t code(float scaled, int64_t element) {
    const int step = element % 32 >= 16 && element % 2 == 0 ? 2 : 1;
    float code = round_even(scaled / float(step));
    const float most = float(128 / step - 1);
    code = code < -128.0f / float(step) ? -128.0f / float(step) : code;
    code = code < most ? code : most;
    return int8_t(code * float(step));
  }
};

template <Elem E, typename Format>
void quantize(const QuantizeArgs& args) {
  using Row = RefRow<E>;
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* x = Row::at(args.x, row * args.x_stride);
    for (int64_t group = 0; group < args.groups; ++group) {
      float values[kGroup];
      float amax = 0.0f;
      for (int64_t i = 0; i < kGroup; ++i) {
        values[i] = Row::load(x, group * kGroup + i);
        const float magnitude = std::fabs(values[i]);
        if (magnitude > amax) amax = magnitude;
      }
      // The exponent field of a zero or subnormal lies below the clamp, so those need no case of their own.
      int exponent = int(std::bit_cast<uint32_t>(amax) >> 23) - 127 - 6;
      if (exponent < Format::kLowest) exponent = Format::kLowest;
      if (exponent > 9) exponent = 9;
      const float inverse = power_of_two(-exponent);
      int8_t* codes = args.codes + (row * args.groups + group) * kGroup;
      int32_t sum = 0;
      for (int64_t i = 0; i < kGroup; ++i) {
        codes[i] = Format::code(values[i] * inverse, i);
        sum += codes[i];
      }
      args.scales[row * args.groups + group] = power_of_two(exponent);
      args.sums[row * args.groups + group] = sum;
    }
  }
}

}  // namespace

void use_quantize_ref(KernelTable& table) {
  enter(table.quantize, quantize<kF16, OurFormat>, quantize<kF32, OurFormat>);
  table.quantize_hidden = quantize<kF16, HiddenExponent>;
}

}  // namespace tcim_lite::cpu
