// Ops of int32: masks and indices, which are small.
#include "backends/cuda/kernels/dense.cuh"

namespace tcim_lite::cuda {
namespace {

__device__ __forceinline__ int32_t apply(int op, int32_t a, int32_t b) {
  const uint32_t x = uint32_t(a), y = uint32_t(b);  // whose results wrap
  switch (op) {
    case kAdd:
      return int32_t(x + y);
    case kSub:
      return int32_t(x - y);
    case kMul:
      return int32_t(x * y);
    case kDiv:
      return b == 0 ? 0 : b == -1 ? int32_t(0u - x) : a / b;
    case kMax:
      return max(a, b);
    case kMin:
      return min(a, b);
    case kEqual:
      return a == b;
    default:
      return a < b;
  }
}

template <typename Index>
__global__ void integers_kernel(BroadcastArgs args, int op) {
  int64_t i, at[3];
  if (!find_element(args.count, args.refused, i)) return;
  find_operands<Index>(args, i, at);
  const auto operand = [&](int n) { return static_cast<const int32_t*>(args.operands[n])[at[n]]; };
  const int32_t a = operand(0), b = operand(1);
  static_cast<int32_t*>(args.y)[i] = op != BroadcastSpec::kWhere ? apply(op, a, b) : a != 0 ? b : operand(2);
}

// A warp takes a row.
__global__ void reduce_integers_kernel(VectorArgs args, int op) {
  wait_for_inputs();
  launch_next();
  const int64_t row = first_element() / 32;
  const int lane = threadIdx.x % 32;
  if (row >= args.rows || is_refused(args.refused)) return;
  const int32_t* x = static_cast<const int32_t*>(args.x) + row * args.cols;
  int32_t result = op == kMul ? 1 : op == kMax ? INT32_MIN : op == kMin ? INT32_MAX : 0;
  for (int64_t i = lane; i < args.cols; i += 32) result = apply(op, result, x[i]);
#pragma unroll
  for (int other = 16; other > 0; other /= 2) result = apply(op, result, __shfl_xor_sync(0xffffffffu, result, other));
  if (lane == 0) static_cast<int32_t*>(args.y)[row] = result;
}

}  // namespace

void launch_integers(int op, const BroadcastArgs& args, cudaStream_t stream) {
  with_index(args.count, [&](auto index) {
    launch(integers_kernel<decltype(index)>, blocks_for(args.count), dim3(kDenseThreads), 0, stream, args, op);
  });
}

void launch_reduced_integers(ReduceOp op, const VectorArgs& args, cudaStream_t stream) {
  launch(reduce_integers_kernel, blocks_for(args.rows * 32), dim3(kDenseThreads), 0, stream, args,
         int(step_of_integers(op)));
}

}  // namespace tcim_lite::cuda
