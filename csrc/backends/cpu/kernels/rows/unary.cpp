// Ops of one operand.
#include "backends/cpu/kernels/vector/functions_simd.h"

namespace tcim_lite::cpu {
namespace {

template <typename T, typename Function>
void rows_of(const UnaryArgs& args, Function function) {
  const T* x = static_cast<const T*>(args.x);
  T* y = static_cast<T*>(args.y);
  const int64_t count = args.count, x_stride = args.x_stride, y_stride = args.y_stride;
  for (int64_t rows = args.rows; rows > 0; --rows, x += x_stride, y += y_stride)
    for_lanes(count, [&](int64_t i, auto lanes) { store(y + i, function(load(x + i, lanes)), lanes); });
}

template <typename T, UnaryOp op>
void unary(const UnaryArgs& args) {
  rows_of<T>(args, [alpha = args.alpha, beta = args.beta](Vec x) { return apply<op>(x, alpha, beta); });
  if constexpr (sizeof(T) == 4) {
    if (!args.to_half) return;
    UnaryArgs again = args;  // a loop of its own, as its operations would wait for all of the function's
    again.x = args.y, again.x_stride = args.y_stride;
    rows_of<T>(again, [](Vec x) { return round_to_half(x); });
  }
}

enum class Rounding { None, ToHalf, WithinHalf };  // WithinHalf: no number is beyond fp16

// apply<kFakeQuantize> of Count vectors, operation by operation: those of one vector wait for each other, and fill the
// schedulers of a CPU before the next vector's begin.
template <int Count, typename T, typename Lanes>
__attribute__((always_inline)) inline void codes_of(const UnaryArgs& args, Rounding rounding, const T* x, T* y,
                                                    Lanes lanes) {
  const Vec alpha = broadcast(args.alpha), beta = broadcast(args.beta), last = broadcast(args.beta + (kCodes - 1));
  Vec values[Count];
#pragma GCC unroll 4
  for (int i = 0; i < Count; ++i) values[i] = load(x + i * kLanes, lanes) / alpha;
#pragma GCC unroll 4
  for (int i = 0; i < Count; ++i) values[i] = smaller(larger(whole(values[i]), beta), last);
#pragma GCC unroll 4
  for (int i = 0; i < Count; ++i) values[i] = (values[i] + broadcast(0.0f)) * alpha;
#pragma GCC unroll 4
  for (int i = 0; rounding == Rounding::ToHalf && i < Count; ++i) values[i] = round_to_half(values[i]);
#pragma GCC unroll 4
  for (int i = 0; rounding == Rounding::WithinHalf && i < Count; ++i) values[i] = round_to_any_half(values[i]);
#pragma GCC unroll 4
  for (int i = 0; i < Count; ++i) store(y + i * kLanes, values[i], lanes);
}

template <typename T>
void fake_quantize(const UnaryArgs& by_reference) {
  constexpr int64_t kSome = 4;
  const UnaryArgs args = by_reference;  // which no store can change
  const T* x = static_cast<const T*>(args.x);
  T* y = static_cast<T*>(args.y);
  const float least = args.beta * args.alpha, most = (args.beta + (kCodes - 1)) * args.alpha;
  const bool within = least >= -65504.0f && most <= 65504.0f && args.alpha > 0;
  const Rounding rounding = sizeof(T) == 2 || !args.to_half ? Rounding::None
                            : within                        ? Rounding::WithinHalf
                                                            : Rounding::ToHalf;
  for (int64_t rows = args.rows; rows > 0; --rows, x += args.x_stride, y += args.y_stride) {
    int64_t done = 0;
    for (; done + kSome * kLanes <= args.count; done += kSome * kLanes)
      codes_of<kSome>(args, rounding, x + done, y + done, Full{});
    for_lanes(args.count - done,
              [&](int64_t i, auto lanes) { codes_of<1>(args, rounding, x + done + i, y + done + i, lanes); });
  }
}

}  // namespace

void TCIM_LITE_USE(unary)(KernelTable& table) {
  for_ops<UnaryOp, kUnaryOps>([&](auto op) {
    if constexpr (op.value == kFakeQuantize)
      enter(table.unary[op.value], fake_quantize<uint16_t>, fake_quantize<float>);
    else
      enter(table.unary[op.value], unary<uint16_t, op.value>, unary<float, op.value>);
  });
}

}  // namespace tcim_lite::cpu
