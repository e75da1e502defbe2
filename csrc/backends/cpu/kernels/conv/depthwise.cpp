// Convolutions channel by channel, from planes with their padding around them.
#include "backends/cpu/kernels/conv/conv_end.h"

namespace tcim_lite::cpu {
namespace {

// Taps: how many, or 0 where only args knows. Known, they are unrolled and their weights stay in registers.
template <typename T, int Taps>
void depthwise(const DepthwiseArgs& args) {
  const EndOf<T> end{args.end};
  const int64_t taps = Taps > 0 ? Taps : args.taps;
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    const T* residual = args.residual ? static_cast<const T*>(args.residual) + row * args.cols : nullptr;
    T* y = static_cast<T*>(args.y) + row * args.cols;
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      Vec sum = broadcast(0.0f);
#pragma GCC unroll 9
      for (int64_t tap = 0; tap < taps; ++tap)
        sum = fma(broadcast(args.weights[tap]), load(x + i + args.offsets[tap]), sum);
      end.store_sum(sum, args.bias, residual, y, i, lanes);
    });
  }
}

// Whether nine taps are three rows of three, a row of the output apart: neighbouring outputs share rows of the input.
bool shares_rows(const DepthwiseArgs& args) {
  if (args.taps != 9) return false;
  for (int64_t tap = 3; tap < 9; ++tap) {
    if (args.offsets[tap] != args.offsets[tap - 3] + args.x_stride) return false;
  }
  return true;
}

// V vectors of columns from `column` on, all rows: every row of the input is loaded once, for three rows of outputs.
// The last vector has `lanes`.
template <int V, typename T, typename Lanes>
void shared_rows(const DepthwiseArgs& args, EndOf<T> end, int64_t column, Lanes lanes) {
  const T* residual = args.residual ? static_cast<const T*>(args.residual) : nullptr;
  T* y = static_cast<T*>(args.y);
  Vec weights[9];
#pragma GCC unroll 9
  for (int tap = 0; tap < 9; ++tap) weights[tap] = broadcast(args.weights[tap]);
  // Sums of the row above, whose last taps come now, and of the row itself.
  Vec above[V], own[V];
  for (int v = 0; v < V; ++v) above[v] = own[v] = broadcast(0.0f);
  const float* x = args.x + column;
  for (int64_t row = 0; row < args.rows + 2; ++row, x += args.x_stride) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      Vec next = broadcast(0.0f), sum = above[v];
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) {
        const Vec value = load(x + args.offsets[j] + v * kLanes);
        sum = fma(weights[6 + j], value, sum);
        own[v] = fma(weights[3 + j], value, own[v]);
        next = fma(weights[j], value, next);
      }
      above[v] = own[v];
      own[v] = next;
      if (row < 2) continue;
      const int64_t at = (row - 2) * args.cols, i = column + v * kLanes;
      if (v < V - 1)
        end.store_sum(sum, args.bias, residual ? residual + at : nullptr, y + at, i, Full{});
      else
        end.store_sum(sum, args.bias, residual ? residual + at : nullptr, y + at, i, lanes);
    }
  }
}

// Two vectors at a time: one leaves the multipliers waiting for sums.
template <typename T>
void depthwise_of_shared_rows(const DepthwiseArgs& args) {
  const EndOf<T> end{args.end};
  int64_t column = 0;
  for (; args.cols - column >= 2 * kLanes; column += 2 * kLanes) shared_rows<2, T>(args, end, column, Full{});
  const int64_t left = args.cols - column;
  if (left > kLanes) return shared_rows<2, T>(args, end, column, Tail(left - kLanes));
  if (left == kLanes) return shared_rows<1, T>(args, end, column, Full{});
  if (left > 0) shared_rows<1, T>(args, end, column, Tail(left));
}

template <typename T>
void by_taps(const DepthwiseArgs& args) {
  if (args.rows > 1 && shares_rows(args)) return depthwise_of_shared_rows<T>(args);
  if (args.taps == 9) return depthwise<T, 9>(args);
  depthwise<T, 0>(args);
}

}  // namespace

void TCIM_LITE_USE(depthwise)(KernelTable& table) { enter(table.depthwise, by_taps<uint16_t>, by_taps<float>); }

}  // namespace tcim_lite::cpu
