// RMSNorm, RoPE and the cache write of heads: a warp for each row and head.
#include "backends/cuda/kernels/common.cuh"
#include "backends/cuda/kernels/kernels.h"

namespace tcim_lite::cuda {
namespace {

constexpr int kWarps = 4;

__device__ __forceinline__ float table_at(const void* table, int elem, int64_t i) {
  return elem == kF16 ? __half2float(static_cast<const __half*>(table)[i]) : static_cast<const float*>(table)[i];
}

// Shared memory: a head in T's value for each warp.
template <typename T>
__global__ void heads_kernel(HeadsArgs args) {
  extern __shared__ float shared[];
  wait_for_inputs();
  launch_next();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = args.head_dim;
  const int64_t task = int64_t(blockIdx.x) * kWarps + warp;
  if (task >= int64_t(args.rows) * args.heads) return;
  const int row = int(task / args.heads), head = int(task % args.heads);
  const int slot = row / args.slot_rows, token = row % args.slot_rows;
  if ((args.live != nullptr && row >= *args.live) || (args.refused != nullptr && *args.refused != 0)) return;
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride + int64_t(head) * dim;
  float* values = shared + warp * dim;
  float sum = 0;
  for (int i = lane; i < dim; i += 32) {
    values[i] = load(x + i);
    sum = fmaf(values[i], values[i], sum);
  }
  if (args.norm_weight != nullptr) {
    const float inverse = 1.0f / sqrtf(warp_sum(sum) / float(dim) + args.epsilon);
    for (int i = lane; i < dim; i += 32) values[i] = rounded<T>(values[i] * inverse * args.norm_weight[i]);
  }
  __syncwarp();
  if (args.cos != nullptr) {
    // A position beyond the table belongs to a row that is dropped (G-7).
    const int64_t position = min(*args.rope_valid[slot] + token, args.table_rows - 1);
    const int half = dim / 2;
    for (int i = lane; i < half; i += 32) {
      const float cos = table_at(args.cos, args.table_elem, position * half + i);
      const float sin = table_at(args.sin, args.table_elem, position * half + i);
      const float x1 = values[i], x2 = values[i + half];
      values[i] = rounded<T>(fmaf(-x2, sin, x1 * cos));
      values[i + half] = rounded<T>(fmaf(x1, sin, x2 * cos));
    }
    __syncwarp();
  }
  if (args.y != nullptr) {
    T* y = static_cast<T*>(args.y) + row * args.y_stride + int64_t(head) * dim;
    for (int i = lane; i < dim; i += 32) store(y + i, values[i]);
    return;
  }
  const int64_t position = int64_t(*args.valid[slot]) + token;
  if (token >= *args.current[slot] || position >= args.context) return;
  const int64_t offset = (int64_t(head) * args.context + position) * dim;
  for (int i = lane; i < dim; i += 32) {
    if (args.cache_elem == kF16) store(static_cast<__half*>(args.caches[slot]) + offset + i, values[i]);
    if (args.cache_elem == kF32) store(static_cast<float*>(args.caches[slot]) + offset + i, values[i]);
  }
}

}  // namespace

void launch_heads(Elem elem, const HeadsArgs& args, cudaStream_t stream) {
  const int64_t tasks = int64_t(args.rows) * args.heads;
  const dim3 grid(unsigned((tasks + kWarps - 1) / kWarps));
  const size_t shared = size_t(kWarps * args.head_dim) * sizeof(float);
  if (elem == kF16) launch(heads_kernel<__half>, grid, dim3(32 * kWarps), shared, stream, args);
  if (elem == kF32) launch(heads_kernel<float>, grid, dim3(32 * kWarps), shared, stream, args);
}

}  // namespace tcim_lite::cuda
