#include <cmath>

#include "backends/cpu/reference/element.h"

namespace tcim_lite::cpu {
namespace {

template <typename Row>
void rms_norm(const RmsNormArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* x = Row::at(args.x, row * args.x_stride);
    void* y = Row::at(args.y, row * args.y_stride);
    float partial[16] = {};
    for (int64_t i = 0; i < args.cols; ++i) {
      const float value = Row::load(x, i);
      partial[i % 16] = std::fmaf(value, value, partial[i % 16]);
    }
    const float mean = tree_sum(partial) / float(args.cols);
    const float inverse = 1.0f / std::sqrt(mean + args.epsilon);
    for (int64_t i = 0; i < args.cols; ++i) Row::store(y, i, (Row::load(x, i) * inverse) * args.weight[i]);
  }
}

template <typename Row>
void rope(const RopeArgs& args) {
  const int64_t half = args.head_dim / 2;
  for (int64_t head = 0; head < args.heads; ++head) {
    const void* x = Row::at(args.x, head * args.x_stride);
    void* y = Row::at(args.y, head * args.y_stride);
    for (int64_t i = 0; i < half; ++i) {
      const float x1 = Row::load(x, i), x2 = Row::load(x, i + half);
      Row::store(y, i, std::fmaf(-x2, args.sin[i], x1 * args.cos[i]));
      Row::store(y, i + half, std::fmaf(x1, args.sin[i], x2 * args.cos[i]));
    }
  }
}

}  // namespace

void use_norm_ref(KernelTable& table) {
  enter(table.rms_norm, rms_norm<F16Row>, rms_norm<F32Row>);
  enter(table.rope, rope<F16Row>, rope<F32Row>);
}

}  // namespace tcim_lite::cpu
