// Reductions of rows, softmax and layer normalisation.
#include "backends/cpu/kernels/vector/functions_simd.h"

namespace tcim_lite::cpu {
namespace {

template <ReduceOp op>
constexpr float kIdentity = op == kReduceMax    ? -__builtin_inff()
                            : op == kReduceMin  ? __builtin_inff()
                            : op == kReduceProd ? 1.0f
                                                : 0.0f;

template <ReduceOp op, typename V>
V combine(V sum, V other) {
  if constexpr (op == kReduceMax) return larger(sum, other);
  if constexpr (op == kReduceMin) return smaller(sum, other);
  if constexpr (op == kReduceProd) return sum * other;
  return sum + other;
}

template <ReduceOp op>
Vec add_element(Vec sum, Vec x) {
  if constexpr (op == kReduceSumSquare) return fma(x, x, sum);
  if constexpr (op == kReduceL1) return sum + abs(x);
  return combine<op>(sum, x);
}

// The 16 partial results of a row.
template <ReduceOp op, typename T>
Vec fold(const T* x, int64_t count) {
  Vec partial = broadcast(kIdentity<op>);
  for_lanes(count, [&](int64_t i, auto lanes) {
    partial = first_lanes(add_element<op>(partial, load(x + i, lanes)), partial, lanes);
  });
  return partial;
}

// The results of up to 16 rows, lane i that of row i: partial results are combined i with i + 8, + 4, + 2, + 1.
template <ReduceOp op, typename T>
Vec fold_rows(const T* x, int64_t rows, int64_t cols) {
  Vec partial[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) partial[i] = i < rows ? fold<op>(x + i * cols, cols) : broadcast(0.0f);
  transpose(partial);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) partial[i] = combine<op>(partial[i], partial[i + half]);
  }
  return partial[0];
}

template <typename T, ReduceOp op>
void reduce(const ReduceArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  for_lanes(args.rows, [&](int64_t row, auto lanes) {
    Vec result = fold_rows<op>(x + row * args.cols, args.rows - row, args.cols);
    if constexpr (op == kReduceMean) result = result / broadcast(float(args.cols));
    store(static_cast<T*>(args.y) + row, result, lanes);
  });
}

template <typename T>
void softmax(const SoftmaxArgs& args) {
  float largest[kLanes];  // of the rows from a multiple of 16 on
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.cols;
    T* y = static_cast<T*>(args.y) + row * args.cols;
    if (row % kLanes == 0) store(largest, fold_rows<kReduceMax>(x, args.rows - row, args.cols));
    const Vec most = broadcast(largest[row % kLanes]);
    for_lanes(args.cols,
              [&](int64_t i, auto lanes) { store(args.scratch + i, exp(load(x + i, lanes) - most), lanes); });
    const float sum = tree_sum(fold<kReduceSum>(args.scratch, args.cols));
    const Vec divisor = broadcast(args.log ? log_one(sum) : sum);
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      store(y + i, args.log ? (load(x + i, lanes) - most) - divisor : load(args.scratch + i, lanes) / divisor, lanes);
    });
  }
}

template <typename T>
void layer_norm(const LayerNormArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.cols;
    T* y = static_cast<T*>(args.y) + row * args.cols;
    const Vec mean = broadcast(tree_sum(fold<kReduceSum>(x, args.cols)) / float(args.cols));
    Vec squares = broadcast(0.0f);
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      const Vec difference = load(x + i, lanes) - mean;
      squares = first_lanes(fma(difference, difference, squares), squares, lanes);
    });
    const float variance = tree_sum(squares) / float(args.cols);
    const Vec inverse = broadcast(1.0f / __builtin_sqrtf(variance + args.epsilon));
    for_lanes(args.cols, [&](int64_t i, auto lanes) {
      Vec value = (load(x + i, lanes) - mean) * inverse;
      if (args.weight != nullptr && args.bias != nullptr) {
        value = fma(value, load(args.weight + i, lanes), load(args.bias + i, lanes));
      } else if (args.weight != nullptr) {
        value = value * load(args.weight + i, lanes);
      }
      store(y + i, value, lanes);
    });
  }
}

}  // namespace

void TCIM_LITE_USE(reduce)(KernelTable& table) {
  for_ops<ReduceOp, kReduceOps>(
      [&](auto op) { enter(table.reduce[op.value], reduce<uint16_t, op.value>, reduce<float, op.value>); });
  enter(table.softmax, softmax<uint16_t>, softmax<float>);
  enter(table.layer_norm, layer_norm<uint16_t>, layer_norm<float>);
}

}  // namespace tcim_lite::cpu
