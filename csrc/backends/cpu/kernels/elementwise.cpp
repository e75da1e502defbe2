#include "backends/cpu/kernels/simd.h"

namespace tcim_lite::cpu {
namespace {

// One line for each ElementwiseOp; the same in elementwise_ref.cpp.
template <ElementwiseOp op>
Vec apply(Vec a, Vec b) {
  if constexpr (op == kAdd) return a + b;
}

template <typename T, ElementwiseOp op>
void elementwise(const ElementwiseArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* a = static_cast<const T*>(args.a) + row * args.a_stride;
    const T* b = static_cast<const T*>(args.b) + row * args.b_stride;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for_lanes(args.cols,
              [&](int64_t i, auto lanes) { store(y + i, apply<op>(load(a + i, lanes), load(b + i, lanes)), lanes); });
  }
}

template <typename T>
void store_rows(const StoreArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* acc = args.acc + row * args.acc_stride;
    const T* residual = args.residual ? static_cast<const T*>(args.residual) + row * args.residual_stride : nullptr;
    T* y = static_cast<T*>(args.y) + row * args.y_stride;
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      Vec value = load(acc + i, lanes);
      if (args.bias) value = value + load(args.bias + i, lanes);
      if (residual) value = load(residual + i, lanes) + round_to<T>(value);
      store(y + i, value, lanes);
    });
  }
}

template <typename T>
void widen(const WidenArgs& args) {
  const Vec factor = broadcast(args.factor);
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    float* y = args.y + row * args.y_stride;
    for_lanes(args.cols, [&](int64_t i, auto lanes) { store(y + i, load(x + i, lanes) * factor, lanes); });
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

// Magnitudes order like their bits, with infinity and then NaN above every finite one.
template <typename T>
bool all_finite(const FiniteArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    Ints magnitude = broadcast(0);
    for_lanes(args.cols, [&](int64_t i, auto lanes) { magnitude = max(magnitude, bits(abs(load(x + i, lanes)))); });
    if (largest(magnitude) >= 0x7f800000) return false;
  }
  return true;
}

template <typename T, int op = 0>
void use_ops(KernelTable& table) {
  if constexpr (op < kElementwiseOps) {
    table.elementwise[op][kElem<T>] = elementwise<T, ElementwiseOp(op)>;
    use_ops<T, op + 1>(table);
  }
}

template <typename T>
void use(KernelTable& table) {
  use_ops<T>(table);
  table.store[kElem<T>] = store_rows<T>;
  table.widen[kElem<T>] = widen<T>;
  table.narrow[kElem<T>] = narrow<T>;
  table.all_finite[kElem<T>] = all_finite<T>;
}

}  // namespace

void TCIM_LITE_USE(elementwise)(KernelTable& table) {
  use<uint16_t>(table);
  use<float>(table);
}

}  // namespace tcim_lite::cpu
