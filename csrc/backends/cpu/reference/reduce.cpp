#include <cmath>

#include "backends/cpu/reference/functions.h"

namespace tcim_lite::cpu {
namespace {

float combine(ReduceOp op, float sum, float other) {
  switch (op) {
    case kReduceMax:
      return sum < other ? other : sum;
    case kReduceMin:
      return other < sum ? other : sum;
    case kReduceProd:
      return sum * other;
    default:
      return sum + other;
  }
}

float identity(ReduceOp op) {
  return op == kReduceMax ? -__builtin_inff() : op == kReduceMin ? __builtin_inff() : op == kReduceProd ? 1.0f : 0.0f;
}

// Sixteen partial results, element i into i mod 16; then i with i + 8, + 4, + 2, + 1.
template <typename Element>
float fold(ReduceOp op, int64_t count, const Element& element) {
  float partial[16];
  for (float& sum : partial) sum = identity(op);
  for (int64_t i = 0; i < count; ++i) {
    float& sum = partial[i % 16];
    const float x = element(i);
    sum = op == kReduceSumSquare ? std::fmaf(x, x, sum) : combine(op, sum, op == kReduceL1 ? std::fabs(x) : x);
  }
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) partial[i] = combine(op, partial[i], partial[i + half]);
  }
  return partial[0];
}

template <typename Row, ReduceOp op>
void reduce(const ReduceArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* x = Row::at(args.x, row * args.cols);
    float result = fold(op, args.cols, [&](int64_t i) { return Row::load(x, i); });
    if (op == kReduceMean) result = result / float(args.cols);
    Row::store(args.y, row, result);
  }
}

template <typename Row>
void softmax(const SoftmaxArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* x = Row::at(args.x, row * args.cols);
    void* y = Row::at(args.y, row * args.cols);
    const float largest = fold(kReduceMax, args.cols, [&](int64_t i) { return Row::load(x, i); });
    for (int64_t i = 0; i < args.cols; ++i) args.scratch[i] = exp_ref(Row::load(x, i) - largest);
    const float sum = fold(kReduceSum, args.cols, [&](int64_t i) { return args.scratch[i]; });
    const float log_sum = log_one(sum);
    for (int64_t i = 0; i < args.cols; ++i)
      Row::store(y, i, args.log ? (Row::load(x, i) - largest) - log_sum : args.scratch[i] / sum);
  }
}

template <typename Row>
void layer_norm(const LayerNormArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const void* x = Row::at(args.x, row * args.cols);
    void* y = Row::at(args.y, row * args.cols);
    const float mean = fold(kReduceSum, args.cols, [&](int64_t i) { return Row::load(x, i); }) / float(args.cols);
    const auto difference = [&](int64_t i) { return Row::load(x, i) - mean; };
    const float variance = fold(kReduceSumSquare, args.cols, difference) / float(args.cols);
    const float inverse = 1.0f / std::sqrt(variance + args.epsilon);
    for (int64_t i = 0; i < args.cols; ++i) {
      float value = difference(i) * inverse;
      if (args.weight != nullptr && args.bias != nullptr) {
        value = std::fmaf(value, args.weight[i], args.bias[i]);
      } else if (args.weight != nullptr) {
        value = value * args.weight[i];
      }
      Row::store(y, i, value);
    }
  }
}

}  // namespace

void use_reduce_ref(KernelTable& table) {
  for_ops<ReduceOp, kReduceOps>(
      [&](auto op) { enter(table.reduce[op.value], reduce<F16Row, op.value>, reduce<F32Row, op.value>); });
  enter(table.softmax, softmax<F16Row>, softmax<F32Row>);
  enter(table.layer_norm, layer_norm<F16Row>, layer_norm<F32Row>);
}

}  // namespace tcim_lite::cpu
