#include <arm_neon.h>

#include "backends/cpu/kernel_table.h"

namespace tcim_lite::cpu {
namespace {

template <typename T>
constexpr Elem kElem = sizeof(T) == 2 ? kF16 : kF32;

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

// One rounding to T, kept in fp32.
template <typename T>
float32x4_t round_to(float32x4_t v) {
  if constexpr (sizeof(T) == 2) return vcvt_f32_f16(vreinterpret_f16_u16(to_half(v)));
  return v;
}

template <typename T>
void store_rows(const StoreArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* acc = args.acc + row * args.acc_stride;
    const T* residual = args.residual ? static_cast<const T*>(args.residual) + row * args.residual_stride : nullptr;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      float32x4_t value = load(acc + i, lanes);
      if (args.bias) value = vaddq_f32(value, load(args.bias + i, lanes));
      if (residual) value = vaddq_f32(load(residual + i, lanes), round_to<T>(value));
      store(y + i, value, lanes);
    });
  }
}

template <typename T>
void add(const AddArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* a = static_cast<const T*>(args.a) + row * args.a_stride;
    const T* b = static_cast<const T*>(args.b) + row * args.b_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for_lanes(args.cols,
              [&](int64_t i, auto lanes) { store(y + i, vaddq_f32(load(a + i, lanes), load(b + i, lanes)), lanes); });
  }
}

template <typename T>
void widen(const WidenArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    float* y = args.y + row * args.y_stride;
    for_lanes(args.cols,
              [&](int64_t i, auto lanes) { store(y + i, vmulq_n_f32(load(x + i, lanes), args.factor), lanes); });
  }
}

template <typename T>
void narrow(const NarrowArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for_lanes(args.cols, [&](int64_t i, auto lanes) { store(y + i, load(x + i, lanes), lanes); });
  }
}

template <typename T>
bool all_finite(const FiniteArgs& args) {
  const float32x4_t largest = vdupq_n_f32(0x1.fffffep+127f);
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    uint32x4_t within = vdupq_n_u32(~0u);
    for_lanes(args.cols,
              [&](int64_t i, auto lanes) { within = vandq_u32(within, vcaleq_f32(load(x + i, lanes), largest)); });
    if (vminvq_u32(within) == 0) return false;
  }
  return true;
}

template <typename T>
void use(KernelTable& table) {
  table.store[kElem<T>] = store_rows<T>;
  table.add[kElem<T>] = add<T>;
  table.widen[kElem<T>] = widen<T>;
  table.narrow[kElem<T>] = narrow<T>;
  table.all_finite[kElem<T>] = all_finite<T>;
}

}  // namespace

void use_elementwise_neon(KernelTable& table) {
  use<uint16_t>(table);
  use<float>(table);
}

}  // namespace tcim_lite::cpu
