// Activations of a quantised Linear as Hopper's products read them (linear_wgmma.cu).
#include <algorithm>

#include "backends/cuda/kernels/linear_wgmma.cuh"
#include "backends/cuda/kernels/prepared_row.cuh"

namespace tcim_lite::cuda {
namespace {

// Blocks of a row together have a thread for each of its pieces of 8 inputs.
__global__ void operand_kernel(LinearArgs args, char* operand, int padded_rows) {
  __shared__ float shared[33];
  const int row = blockIdx.x, k = int(blockIdx.y * blockDim.x + threadIdx.x) * 8;
  const bool inside = k < args.inputs, has_norm = args.norm_weight != nullptr;
  float weights[8] = {};  // no launch writes them
  if (has_norm && inside) load8_weights(args.norm_weight + k, weights);
  wait_for_inputs();
  launch_next();
  float v[8] = {};
  if (inside) load8_any(static_cast<const __half*>(args.x) + row * args.x_stride + k, v);
  if (row >= live_rows(args)) return;
  if (has_norm) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(v[i], v[i], sum);
    const float inverse = 1.0f / sqrtf(block_sum(sum, shared) / float(args.inputs) + args.epsilon);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = v[i] * inverse * weights[i];
    round_halves(v);
  }
  leave_group(operand, padded_rows, row, k / 64, v, inside);
}

// The same of a row with a norm that has more pieces than a block has threads.
__global__ void long_operand_kernel(LinearArgs args, char* operand, int padded_rows) {
  __shared__ float shared[33];
  wait_for_inputs();
  launch_next();
  const int row = blockIdx.x;
  if (row >= live_rows(args)) return;
  const PreparedRow<__half> x(args, row, shared);
  for (int first = 0; first < args.inputs; first += int(blockDim.x) * 8) {
    const int k = first + int(threadIdx.x) * 8;
    const bool inside = k < args.inputs;
    float v[8] = {};
    if (inside) x.load(k, v);
    leave_group(operand, padded_rows, row, k / 64, v, inside);
  }
}

}  // namespace

void launch_operand(const LinearArgs& args, void* operand, cudaStream_t stream) {
  // Blocks share a row, unless each would have to read all of it for the norm.
  const bool has_norm = args.norm_weight != nullptr;
  const int pieces = args.inputs / 8, threads = std::min(has_norm ? 1024 : 512, (pieces + 31) / 32 * 32);
  const int parts = has_norm ? 1 : (pieces + threads - 1) / threads;
  const auto kernel = parts * threads < pieces ? long_operand_kernel : operand_kernel;
  launch(kernel, dim3(unsigned(args.rows), unsigned(parts)), dim3(unsigned(threads)), 0, stream, args,
         static_cast<char*>(operand), int(operand_rows(args.rows)));
}

}  // namespace tcim_lite::cuda
