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
template <typename T>
void store(T* p, float32x4_t v, Tail tail) {
  T values[4];
  store(values, v, Full{});
  for (int64_t i = 0; i < tail.count; ++i) p[i] = values[i];
}

// sums[i] holds the partial sums 4 i to 4 i + 3: i with i + 8, + 4, + 2, + 1.
float tree_sum(const float32x4_t* sums) {
  const float32x4_t four = vaddq_f32(vaddq_f32(sums[0], sums[2]), vaddq_f32(sums[1], sums[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

template <typename T>
void rms_norm(const RmsNormArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    float32x4_t sums[4];  // never -0: the zeros beyond the tail change nothing
    for (float32x4_t& sum : sums) sum = vdupq_n_f32(0.0f);
    const int64_t whole = args.cols / 16 * 16;
    for (int64_t i = 0; i < whole; i += 16) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const float32x4_t value = load(x + i + 4 * j, Full{});
        sums[j] = vfmaq_f32(sums[j], value, value);
      }
    }
    for_lanes(args.cols - whole, [&](int64_t i, auto lanes) {
      const float32x4_t value = load(x + whole + i, lanes);
      sums[i / 4] = vfmaq_f32(sums[i / 4], value, value);
    });
    const float mean = tree_sum(sums) / float(args.cols);
    const float inverse = 1.0f / __builtin_sqrtf(mean + args.epsilon);
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      const float32x4_t scaled = vmulq_n_f32(load(x + i, lanes), inverse);
      store(y + i, vmulq_f32(scaled, load(args.weight + i, lanes)), lanes);
    });
  }
}

template <typename T>
void rope(const RopeArgs& args) {
  const int64_t half = args.head_dim / 2;
  for (int64_t head = 0; head < args.heads; ++head) {
    const T* x = static_cast<const T*>(args.x) + head * args.x_stride;
    T* y = static_cast<T*>(args.y) + head * args.y_stride;
    for_lanes(half, [&](int64_t i, auto lanes) {
      const float32x4_t x1 = load(x + i, lanes), x2 = load(x + half + i, lanes);
      const float32x4_t cos = load(args.cos + i, lanes), sin = load(args.sin + i, lanes);
      store(y + i, vfmsq_f32(vmulq_f32(x1, cos), x2, sin), lanes);
      store(y + half + i, vfmaq_f32(vmulq_f32(x2, cos), x1, sin), lanes);
    });
  }
}

}  // namespace

void use_norm_neon(KernelTable& table) {
  table.rms_norm[kF16] = rms_norm<uint16_t>;
  table.rms_norm[kF32] = rms_norm<float>;
  table.rope[kF16] = rope<uint16_t>;
  table.rope[kF32] = rope<float>;
}

}  // namespace tcim_lite::cpu
