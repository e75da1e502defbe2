// What the kernels share.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "backends/cuda/check.h"

namespace tcim_lite::cuda {

// Stops the compiler from computing what depends on the value ahead of a surrounding loop, which would occupy
// registers.
__device__ __forceinline__ int unhoisted(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

__device__ __forceinline__ float load(const __half* p) { return __half2float(*p); }
__device__ __forceinline__ float load(const float* p) { return *p; }

// fp16 saturates at 65504 (docs/numerics.md section 2); NaN stays NaN.
__device__ __forceinline__ __half to_half(float v) {
  v = v > 65504.0f ? 65504.0f : v;
  v = v < -65504.0f ? -65504.0f : v;
  return __float2half_rn(v);
}
__device__ __forceinline__ void store(__half* p, float v) { *p = to_half(v); }
__device__ __forceinline__ void store(float* p, float v) { *p = v; }

// Attention tells the host, whose int is `odd`, of a result that is NaN or infinite (graph/plan/cache_rows.h).
__device__ __forceinline__ void tell_unless_finite(float v, int* odd) {
  if (!(fabsf(v) < INFINITY)) *odd = 1;
}
// `sum`, or NaN when the value is NaN or infinite. Scores need it: an infinity in a key may make one of -infinity,
// whose share is 0, and a NaN is no maximum, so neither need show in what comes of them.
__device__ __forceinline__ float marked(float sum, float value) { return fmaf(value, 0.0f, sum); }

template <typename T>
__device__ __forceinline__ float rounded(float v);
template <>
__device__ __forceinline__ float rounded<__half>(float v) {
  return __half2float(to_half(v));
}
template <>
__device__ __forceinline__ float rounded<float>(float v) {
  return v;
}

__device__ __forceinline__ float silu(float g) { return g / (1.0f + expf(-g)); }
// SiluMul with a limit; a NaN stays one.
__device__ __forceinline__ float clamped_glu(float gate, float up, float alpha, float limit) {
  gate = gate > limit ? limit : gate;
  up = up > limit ? limit : up < -limit ? -limit : up;
  return (up + 1.0f) * (gate / (1.0f + expf(-(alpha * gate))));
}

// 1 / root of a mean square plus epsilon. One step of Newton's method: within an ulp or two of the rounded division and
// root, in a third of their time.
__device__ __forceinline__ float inverse_root(float mean) {
  const float root = rsqrtf(mean);
  return fmaf(0.5f * root, fmaf(-mean * root, root, 1.0f), root);
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) v += __shfl_xor_sync(0xffffffffu, v, lane);
  return v;
}

// Of all threads of the block, the same in each. `scratch` holds 33 floats.
__device__ __forceinline__ float block_sum(float v, float* scratch) {
  v = warp_sum(v);
  const int warps = int(blockDim.x) / 32;
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x < 32) {
    v = warp_sum(int(threadIdx.x) < warps ? scratch[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) scratch[32] = v;
  }
  __syncthreads();
  return scratch[32];
}

// Programmatic dependent launch: a kernel starts while the one before it drains. What it reads of that one comes after
// wait_for_inputs(); launch_next() lets the next one start.
__device__ __forceinline__ void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void launch_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Whether the next launch may overlap the one before it: the GPU can, and nothing but a kernel of this stream came
// before.
bool take_dependent_launch();
// Bytes of shared memory that a block may have on the current GPU.
size_t most_shared();
int multiprocessors();

// Blocks that follow each other in x are a cluster.
template <typename... Parameters, typename... Arguments>
void launch_in_clusters(int blocks, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                        cudaStream_t stream, Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t config{};
  if (take_dependent_launch()) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (blocks > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = unsigned(blocks);
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  }
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = attributes;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
            Arguments&&... arguments) {
  launch_in_clusters(1, kernel, grid, block, shared, stream, std::forward<Arguments>(arguments)...);
}

}  // namespace tcim_lite::cuda
