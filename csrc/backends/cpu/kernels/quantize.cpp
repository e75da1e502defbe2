#include "backends/cpu/kernels/simd.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kGroup = 64;
constexpr int kVecs = kGroup / kLanes;

template <typename T>
void quantize(const QuantizeArgs& args) {
  const Vec low = broadcast(-127.0f), high = broadcast(127.0f);
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
      exponent = exponent < -30 ? -30 : exponent;
      exponent = exponent > 9 ? 9 : exponent;
      const Vec inverse = from_bits(broadcast(int32_t{(127 - exponent) << 23}));
      Ints total = broadcast(0);
      for (int i = 0; i < kVecs; ++i) {
        const Ints code = nearest(min(max(values[i] * inverse, low), high));
        total = total + code;
        store_bytes(codes + kLanes * i, code);
      }
      args.scales[row * args.groups + group] = first_lane(from_bits(broadcast(int32_t{(exponent + 127) << 23})));
      args.sums[row * args.groups + group] = sum(total);
    }
  }
}

}  // namespace

void TCIM_LITE_USE(quantize)(KernelTable& table) { enter(table.quantize, quantize<uint16_t>, quantize<float>); }

}  // namespace tcim_lite::cpu
