// A row of a Linear's x after its norm, where it has one: for kernels that prepare rows for others, a block each.
#pragma once

#include "backends/cuda/kernels/linear.cuh"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda {

// All threads of a block make one together. shared: 33 floats.
template <typename T>
class PreparedRow {
 public:
  __device__ __forceinline__ PreparedRow(const LinearArgs& args, int row, float* shared)
      : args_(args), x_(static_cast<const T*>(args.x) + row * args.x_stride) {
    if (args.norm_weight == nullptr) return;
    float sum = 0;
    for (int k = threadIdx.x * 8; k < args.inputs; k += blockDim.x * 8) {
      float v[8];
      load8_any(x_ + k, v);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = fmaf(v[i], v[i], sum);
    }
    inverse_ = 1.0f / sqrtf(block_sum(sum, shared) / float(args.inputs) + args.epsilon);
  }

  // Values k .. k + 7.
  __device__ __forceinline__ void load(int k, float (&v)[8]) const {
    load8_any(x_ + k, v);
    if (args_.norm_weight == nullptr) return;
    float weights[8];
    load8_weights(args_.norm_weight + k, weights);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = v[i] * inverse_ * weights[i];
    if constexpr (sizeof(T) == 2) round_halves(v);
  }

 private:
  const LinearArgs& args_;
  const T* const x_;
  float inverse_ = 1;
};

}  // namespace tcim_lite::cuda
