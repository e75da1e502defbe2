// Quantised convolutions as float16 products. A code of an activation times its power of two is a float16 number
// (docs/numerics.md section 3: a multiple of 2^-24, at most 127 * 2^9), and so is an 8-bit weight times its own where
// that is from 2^-24 to 2^8: their products are exact in fp32, and only the order of the sums differs from a Linear's.
#include "backends/cuda/kernels/dense.cuh"
#include "backends/cuda/kernels/kernels.h"
#include "backends/cuda/kernels/linear_any.cuh"

namespace tcim_lite::cuda {
namespace {

__global__ void dequantise_kernel(const void* weights, __half* to, int64_t m, int64_t k, int* inexact) {
  const int64_t i = first_element();
  if (i >= m * k) return;
  const float value = any::weight_at<WeightFormat::LinearW8>(weights, i / k, int(i % k), int(k));
  to[i] = __float2half_rn(value);
  if (__half2float(to[i]) != value) *inexact = 1;
}

// Eight lanes have a group.
__global__ void round_groups_kernel(const __half* x, __half* y, int64_t count) {
  wait_for_inputs();
  launch_next();
  const int64_t i = first_element(8);
  const bool inside = i < count;
  float v[8] = {};
  if (inside) load8(x + i, v);
  round_to_codes(v);
  if (inside) *reinterpret_cast<uint4*>(y + i) = pack_halves(v);
}

}  // namespace

void launch_dequantise(const void* weights, void* to, int64_t m, int64_t k, int* inexact, cudaStream_t stream) {
  break_overlap();
  launch(dequantise_kernel, blocks_for(m * k), dim3(kDenseThreads), 0, stream, weights, static_cast<__half*>(to), m, k,
         inexact);
}

void launch_round_groups(const void* x, void* y, int64_t count, cudaStream_t stream) {
  launch(round_groups_kernel, blocks_for(count, 8), dim3(kDenseThreads), 0, stream, static_cast<const __half*>(x),
         static_cast<__half*>(y), count);
}

}  // namespace tcim_lite::cuda
