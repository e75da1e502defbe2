#include <arm_neon.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

// Four lanes, or the last one to three.
struct Full {};
struct Tail {
  int64_t count;
};

template <typename Body>
inline void for_lanes(int64_t count, Body body) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) body(i, Full{});
  if (i < count) body(i, Tail{count - i});
}

float32x4_t load(const float* p, Full) { return vld1q_f32(p); }
float32x4_t load(const uint16_t* p, Full) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
template <typename T>
float32x4_t load(const T* p, Tail tail) {
  T values[4] = {};
  for (int64_t i = 0; i < tail.count; ++i) values[i] = p[i];
  return load(values, Full{});
}
void store(float* p, float32x4_t v, Full) { vst1q_f32(p, v); }
// Saturates at 65504; a NaN passes.
uint16x4_t to_half(float32x4_t v) {
  v = vmaxq_f32(vdupq_n_f32(-65504.0f), vminq_f32(vdupq_n_f32(65504.0f), v));
  return vreinterpret_u16_f16(vcvt_f16_f32(v));
}
void store(uint16_t* p, float32x4_t v, Full) { vst1_u16(p, to_half(v)); }
void store(float* p, float32x4_t v, Tail tail) {
  float values[4];
  store(values, v, Full{});
  for (int64_t i = 0; i < tail.count; ++i) p[i] = values[i];
}

// One rounding to T, kept in fp32.
template <typename T>
float32x4_t round_to(float32x4_t v) {
  if constexpr (sizeof(T) == 2) return vcvt_f32_f16(vreinterpret_f16_u16(to_half(v)));
  return v;
}

// exp_ref of activation_ref.cpp on 4 lanes.
float32x4_t exp4(float32x4_t x) {
  const float32x4_t lowest = vdupq_n_f32(-0x1.5d589ep+6f), magic = vdupq_n_f32(0x1.8p+23f);
  const uint32x4_t vanishes = vcltq_f32(x, lowest);
  x = vminq_f32(vdupq_n_f32(88.0f), vmaxq_f32(lowest, x));  // NaN passes
  const float32x4_t shifted = vfmaq_f32(magic, x, vdupq_n_f32(0x1.715476p+0f));
  const float32x4_t n = vsubq_f32(shifted, magic);
  float32x4_t r = vfmaq_f32(x, n, vdupq_n_f32(-0x1.62e430p-1f));
  r = vfmaq_f32(r, n, vdupq_n_f32(0x1.05c610p-29f));
  float32x4_t p = vdupq_n_f32(0x1.6a23cep-10f);
  p = vfmaq_f32(vdupq_n_f32(0x1.123a20p-7f), p, r);
  p = vfmaq_f32(vdupq_n_f32(0x1.5558f2p-5f), p, r);
  p = vfmaq_f32(vdupq_n_f32(0x1.555492p-3f), p, r);
  p = vfmaq_f32(vdupq_n_f32(0x1.fffffcp-2f), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
  const uint32x4_t power = vaddq_u32(vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23), vdupq_n_u32(0x3f800000));
  const float32x4_t result = vmulq_f32(p, vreinterpretq_f32_u32(power));
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(result), vanishes));
}

float32x4_t silu(float32x4_t g) { return vdivq_f32(g, vaddq_f32(vdupq_n_f32(1.0f), exp4(vnegq_f32(g)))); }

template <typename T>
void silu_mul_store(const SiluMulStoreArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* acc = args.acc + row * args.acc_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for (int64_t i = 0; i < args.cols; i += 4) {
      const int64_t at = i / 16 * 32 + i % 16;
      float32x4_t gate = vld1q_f32(acc + at), up = vld1q_f32(acc + at + 16);
      if (args.bias) {
        gate = vaddq_f32(gate, vld1q_f32(args.bias + at));
        up = vaddq_f32(up, vld1q_f32(args.bias + at + 16));
      }
      store(y + i, vmulq_f32(silu(round_to<T>(gate)), round_to<T>(up)), Full{});
    }
  }
}

template <typename T>
void silu_mul(const SiluMulArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for (int64_t i = 0; i < args.cols; i += 4) {
      const T* gate = x + i / 16 * 32 + i % 16;
      store(y + i, vmulq_f32(silu(load(gate, Full{})), load(gate + 16, Full{})), Full{});
    }
  }
}

void exp_many(const float* x, float* y, int64_t count) {
  for_lanes(count, [&](int64_t i, auto lanes) { store(y + i, exp4(load(x + i, lanes)), lanes); });
}

}  // namespace

void use_activation_neon(KernelTable& table) {
  table.silu_mul_store[kF16] = silu_mul_store<uint16_t>;
  table.silu_mul_store[kF32] = silu_mul_store<float>;
  table.silu_mul[kF16] = silu_mul<uint16_t>;
  table.silu_mul[kF32] = silu_mul<float>;
  table.exp = exp_many;
}

}  // namespace tcim_lite::cpu
