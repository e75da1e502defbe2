#include <cmath>

#include "backends/cpu/kernels/conv_end_ref.h"

namespace tcim_lite::cpu {
namespace {

// body(element of y, channel, taps) where taps(body of (tap, value)) goes through what the element reads.
template <typename Row, typename Body>
void for_elements(const BlockWindow& window, const void* x, float outside, const Body& body) {
  const auto &h = window.h, &w = window.w;
  for (int64_t i = 0; i < window.rows * window.cols * window.width; ++i) {
    const int64_t channel = i % window.width, column = i / window.width % window.cols;
    const int64_t row = window.first + i / window.width / window.cols;
    body(i, channel, [&](const auto& take) {
      for (int64_t tap = 0; tap < h.kernel * w.kernel; ++tap) {
        const int64_t in_row = row * h.stride + tap / w.kernel * h.dilation - h.pad;
        const int64_t in_column = column * w.stride + tap % w.kernel * w.dilation - w.pad;
        const bool inside = in_row >= 0 && in_row < h.in && in_column >= 0 && in_column < w.in;
        take(tap, inside ? Row::load(x, (in_row * w.in + in_column) * window.width + channel) : outside);
      }
    });
  }
}

template <typename Row>
void depthwise_block(const DepthwiseBlockArgs& args) {
  for_elements<Row>(args.window, args.x, 0.0f, [&](int64_t i, int64_t channel, const auto& taps) {
    float sum = 0;
    taps([&](int64_t tap, float value) { sum = std::fmaf(args.weights[tap * kBlock + channel], value, sum); });
    store_sum<Row>(args.end, args.bias ? args.bias + channel : nullptr, args.residual, args.y, i, sum);
  });
}

template <typename Row>
void pool_block(const PoolBlockArgs& args) {
  constexpr float kLowest = -INFINITY;
  for_elements<Row>(args.window, args.x, kLowest, [&](int64_t i, int64_t, const auto& taps) {
    float largest = kLowest;
    taps([&](int64_t tap, float value) { largest = tap == 0 || largest < value ? value : largest; });
    Row::store(args.y, i, largest);
  });
}

}  // namespace

void use_blocks_ref(KernelTable& table) {
  enter(table.depthwise_block, depthwise_block<F16Row>, depthwise_block<F32Row>);
  enter(table.pool_block, pool_block<F16Row>, pool_block<F32Row>);
}

}  // namespace tcim_lite::cpu
