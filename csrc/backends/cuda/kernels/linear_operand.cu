// Activations of a quantised Linear as Hopper's products read them (linear_wgmma.cu).
#include <algorithm>

#include "backends/cuda/kernels/linear_wgmma.cuh"
#include "backends/cuda/kernels/prepared_row.cuh"

namespace tcim_lite::cuda {
namespace {

// x as the products read it: [inputs / 64][padded rows][64], swizzled (operand_at). Within a group, four inputs
// 16 t + 4 i .. + 3 lie at 16 i + 2 t, 16 i + 2 t + 8, + 1, + 9: where the items of weights have them (repack.cu).
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
    round_to_codes(v);
    // Lane 2 t + u of eight holds words c of chunks 4 u + c; it gives them away for the words of chunk 4 u + t.
    uint32_t word[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int from = c / 2 * 4 + c % 2;
      const __half2 both = __floats2half2_rn(v[from], v[from + 2]);
      word[c] = *reinterpret_cast<const uint32_t*>(&both);
    }
    const int t = int(threadIdx.x) % 8 / 2, u = int(threadIdx.x) % 2;
#pragma unroll
    for (int bit = 0; bit < 2; ++bit) {
      const bool high = (t >> bit & 1) != 0;
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const int low_word = bit == 0 ? 2 * pair : pair, high_word = low_word + (1 << bit);
        const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? word[low_word] : word[high_word], 2 << bit);
        word[low_word] = high ? got : word[low_word];
        word[high_word] = high ? word[high_word] : got;
      }
    }
    if (!inside) continue;
    char* to = operand + (int64_t(k / 64) * padded_rows + row) * kOperandRowBytes + (((4 * u + t) ^ row) & 7) * 16;
    *reinterpret_cast<uint4*>(to) = make_uint4(word[0], word[1], word[2], word[3]);
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
