#include <cmath>

#include "backends/cpu/reference/conv_end.h"

namespace tcim_lite::cpu {
namespace {

// body(element of y, channel, taps) where taps(body of (tap, value)) goes through what the element reads.
template <typename Body>
void for_elements(const BlockWindow& window, const float* x, float outside, const Body& body) {
  for (int64_t i = 0; i < window.rows * window.cols * kBlock; ++i) {
    const int64_t channel = i % kBlock, column = i / kBlock % window.cols;
    const int64_t row = window.first + i / kBlock / window.cols;
    body(i, channel, [&](const auto& take) {
      const auto value_at = [&](int64_t r, int64_t c) { return x[(r * window.w.in + c) * kBlock + channel]; };
      for_taps(window.h, window.w, row, column, outside, value_at, take);
    });
  }
}

void depthwise_block(const DepthwiseBlockArgs& args) {
  with_block_row(args.elem, [&](auto row) {
    for_elements(args.window, args.x, 0.0f, [&](int64_t i, int64_t channel, const auto& taps) {
      const float bias = args.bias && channel < args.channels ? args.bias[channel] : 0.0f;
      float sum = 0;
      taps([&](int64_t tap, float value) { sum = std::fmaf(args.weights[tap * kBlock + channel], value, sum); });
      store_sum<decltype(row)>(args.end, args.bias ? &bias : nullptr, args.residual, args.y, i, sum);
    });
  });
}

void pool_block(const PoolBlockArgs& args) {
  constexpr float kLowest = -INFINITY;
  for_elements(args.window, args.x, kLowest, [&](int64_t i, int64_t, const auto& taps) {
    float largest = kLowest;
    taps([&](int64_t tap, float value) { largest = tap == 0 || largest < value ? value : largest; });
    args.y[i] = largest;
  });
}

}  // namespace

void use_blocks_ref(KernelTable& table) {
  table.depthwise_block = depthwise_block;
  table.pool_block = pool_block;
}

}  // namespace tcim_lite::cpu
