// What the kernels over dense tensors share: threads over elements, indices of many axes, windows, the end of a
// convolution.
#pragma once

#include "backends/cuda/kernels/common.cuh"
#include "backends/cuda/kernels/functions.cuh"
#include "backends/cuda/kernels/network.h"

namespace tcim_lite::cuda {

constexpr int kDenseThreads = 256;

__device__ __forceinline__ bool is_refused(const int* refused) { return refused != nullptr && *refused != 0; }

// The first element of a thread, each of which takes `each`.
__device__ __forceinline__ int64_t first_element(int each = 1) {
  return (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * each;
}
// The same, once the inputs are there. False: this thread has none of the `count`.
__device__ __forceinline__ bool find_element(int64_t count, const int* refused, int64_t& i, int each = 1) {
  wait_for_inputs();
  launch_next();
  i = first_element(each);
  return i < count && !is_refused(refused);
}
inline dim3 blocks_for(int64_t count, int each = 1) {
  return dim3(unsigned((count + int64_t(kDenseThreads) * each - 1) / (int64_t(kDenseThreads) * each)));
}

template <typename Call>
void with_elem(Elem elem, const Call& call) {
  if (elem == kF16) call(__half());
  if (elem == kF32) call(float());
}

// Unsigned integers of `bytes`.
template <typename Call>
void with_word(int64_t bytes, const Call& call) {
  if (bytes == 1) call(uint8_t());
  if (bytes == 2) call(uint16_t());
  if (bytes == 4) call(uint32_t());
  if (bytes == 8) call(uint2());
  if (bytes == 16) call(uint4());
}

// The type of indices below `count`: divisions of 32 bits are much faster.
template <typename Call>
void with_index(int64_t count, const Call& call) {
  if (count < int64_t(1) << 31)
    call(uint32_t());
  else
    call(uint64_t());
}

// at[n]: where element `i` of the result finds its part of operand n.
template <typename Index>
__device__ __forceinline__ void find_operands(const BroadcastArgs& args, int64_t i, int64_t (&at)[3]) {
  Index rest = Index(i);
  at[0] = at[1] = at[2] = 0;
  for (int axis = args.axes; axis-- > 0;) {
    const Index extent = Index(args.extents[axis]), index = rest % extent;
    rest /= extent;
#pragma unroll
    for (int n = 0; n < 3; ++n) at[n] += int64_t(index) * args.strides[n][axis];
  }
}

// The index that `position` means on an axis, or -1: between two elements, or outside.
__device__ __forceinline__ int index_of(const WindowAxis& axis, int position) {
  if (position < 0) return -1;
  if (axis.upsample != 1) {
    if (position % axis.upsample != 0) return -1;
    position /= axis.upsample;
  }
  return position < axis.in ? position : -1;
}

// The element of y with index `at`, of channel `channel`, that `sum` becomes.
template <typename T>
__device__ __forceinline__ float finish(const ConvEnd& end, int channel, int64_t at, float sum) {
  if (end.bias != nullptr) sum += end.bias[channel];
  if (end.residual != nullptr) sum = load(static_cast<const T*>(end.residual) + at) + rounded<T>(sum);
  if (end.function >= 0) sum = apply_unary(end.function, rounded<T>(sum), end.alpha, end.beta);
  return sum;
}

}  // namespace tcim_lite::cuda
