// Activations of a quantised Linear as Hopper's products read them (linear_wgmma.cu).
#include <algorithm>

#include "backends/cuda/kernels/linear_wgmma.cuh"
#include "backends/cuda/kernels/prepared_row.cuh"

namespace tcim_lite::cuda {
namespace {

__global__ void operand_kernel(LinearArgs args, char* operand, int padded_rows) {
  __shared__ float shared[33];
  wait_for_inputs();
  launch_next();
  const int row = blockIdx.x;
  if (row >= live_rows(args)) return;
  const PreparedRow<__half> x(args, row, shared);
  for (int first = int(blockIdx.y * blockDim.x) * 8; first < args.inputs; first += int(gridDim.y * blockDim.x) * 8) {
    const int k = first + int(threadIdx.x) * 8;
    const bool inside = k < args.inputs;
    float v[8] = {};
    if (inside) x.load(k, v);
    leave_group(operand, padded_rows, row, k / 64, v, inside);
  }
}

}  // namespace

void launch_operand(const LinearArgs& args, void* operand, cudaStream_t stream) {
  const int threads = std::min(512, (args.inputs / 8 + 31) / 32 * 32);
  // Blocks share a row, unless each would have to read all of it for the norm.
  const int parts = args.norm_weight == nullptr ? (args.inputs + 8 * threads - 1) / (8 * threads) : 1;
  launch(operand_kernel, dim3(unsigned(args.rows), unsigned(parts)), dim3(unsigned(threads)), 0, stream, args,
         static_cast<char*>(operand), int(operand_rows(args.rows)));
}

}  // namespace tcim_lite::cuda
