// Ops of each element by itself.
#include "backends/cuda/kernels/dense.cuh"
#include "backends/cuda/kernels/elementwise.cuh"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda {
namespace {

constexpr int kEach = 8;

template <typename T, UnaryOp op>
__global__ void unary_kernel(UnaryArgs args) {
  int64_t i;
  if (!find_element(args.count, args.refused, i, kEach)) return;
  const T* x = static_cast<const T*>(args.x) + i;
  T* y = static_cast<T*>(args.y) + i;
  if (i + kEach <= args.count) {
    float v[kEach];
    load8_any(x, v);
#pragma unroll
    for (int n = 0; n < kEach; ++n) v[n] = apply<op>(v[n], args.alpha, args.beta);
    store8_any(y, v);
    return;
  }
  for (int n = 0; n < args.count - i; ++n) store(y + n, apply<op>(load(x + n), args.alpha, args.beta));
}

template <int op = 0>
void launch_unary_from(UnaryOp wanted, Elem elem, const UnaryArgs& args, cudaStream_t stream) {
  if constexpr (op < kUnaryOps) {
    if (op != wanted) return launch_unary_from<op + 1>(wanted, elem, args, stream);
    with_elem(elem, [&](auto t) {
      launch(unary_kernel<decltype(t), UnaryOp(op)>, blocks_for(args.count, kEach), dim3(kDenseThreads), 0, stream,
             args);
    });
  }
}

template <typename T, typename Index>
__global__ void broadcast_kernel(BroadcastArgs args, int op) {
  int64_t i, at[3];
  if (!find_element(args.count, args.refused, i)) return;
  find_operands<Index>(args, i, at);
  const float a = load(static_cast<const T*>(args.operands[0]) + at[0]);
  const float b = load(static_cast<const T*>(args.operands[1]) + at[1]);
  float result;
  if (op == BroadcastSpec::kWhere) {
    result = a < 0 || a > 0 ? b : load(static_cast<const T*>(args.operands[2]) + at[2]);
  } else {
    result = apply(op, a, b);
  }
  store(static_cast<T*>(args.y) + i, result);
}

}  // namespace

void launch_unary(UnaryOp op, Elem elem, const UnaryArgs& args, cudaStream_t stream) {
  launch_unary_from(op, elem, args, stream);
}

void launch_broadcast(int op, Elem elem, const BroadcastArgs& args, cudaStream_t stream) {
  with_elem(elem, [&](auto t) {
    with_index(args.count, [&](auto index) {
      launch(broadcast_kernel<decltype(t), decltype(index)>, blocks_for(args.count), dim3(kDenseThreads), 0, stream,
             args, op);
    });
  });
}

}  // namespace tcim_lite::cuda
