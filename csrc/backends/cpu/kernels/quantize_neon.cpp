#include <arm_neon.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

constexpr int64_t kGroup = 64;

float32x4_t load(const float* p) { return vld1q_f32(p); }
float32x4_t load(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }

template <typename T>
void quantize(const QuantizeArgs& args) {
  const float32x4_t low = vdupq_n_f32(-127.0f), high = vdupq_n_f32(127.0f);
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    int8_t* codes = args.codes + row * args.groups * kGroup;
    for (int64_t group = 0; group < args.groups; ++group, x += kGroup, codes += kGroup) {
      float32x4_t amax = vdupq_n_f32(0.0f);
      for (int i = 0; i < kGroup; i += 4) amax = vmaxnmq_f32(amax, vabsq_f32(load(x + i)));
      const uint32_t bits = vmaxvq_u32(vreinterpretq_u32_f32(amax));  // magnitudes order like their bits
      int exponent = int(bits >> 23) - 127 - 6;
      exponent = exponent < -30 ? -30 : exponent;
      exponent = exponent > 9 ? 9 : exponent;
      const float32x4_t inverse = vreinterpretq_f32_u32(vdupq_n_u32(uint32_t(127 - exponent) << 23));
      int16x8_t sum = vdupq_n_s16(0);
      for (int i = 0; i < kGroup; i += 8) {
        int16x4_t words[2];
        for (int j = 0; j < 2; ++j) {
          const float32x4_t scaled = vmaxq_f32(vmulq_f32(load(x + i + 4 * j), inverse), low);
          words[j] = vmovn_s32(vcvtnq_s32_f32(vminnmq_f32(scaled, high)));  // a NaN ends as 127
        }
        const int16x8_t eight = vcombine_s16(words[0], words[1]);
        sum = vaddq_s16(sum, eight);
        vst1_s8(codes + i, vmovn_s16(eight));
      }
      args.sums[row * args.groups + group] = vaddlvq_s16(sum);
      args.scales[row * args.groups + group] =
          vgetq_lane_f32(vreinterpretq_f32_u32(vdupq_n_u32(uint32_t(exponent + 127) << 23)), 0);
    }
  }
}

}  // namespace

void use_quantize_neon(KernelTable& table) {
  table.quantize[kF16] = quantize<uint16_t>;
  table.quantize[kF32] = quantize<float>;
}

}  // namespace tcim_lite::cpu
