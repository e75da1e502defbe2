// Phases that compute rows from rows in memory, without weights: what needs neither the ring nor mail.
#pragma once

#include "backends/cuda/decode/ring.cuh"
#include "backends/cuda/kernels/elementwise.cuh"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda::decode {

// A warp takes a group of all rows: lane 4 g + t 16 inputs of row g.
template <WeightFormat Format>
__device__ __forceinline__ void quantize_rows(const QuantizePhase& quantize, int rows) {
  const int group = int(blockIdx.x) + int(gridDim.x) * (threadIdx.x / 32);
  if (group * 64 >= quantize.inputs) return;
  const int lane = threadIdx.x % 32, row = lane / 4;
  const auto* from = reinterpret_cast<const uint4*>(static_cast<const __half*>(quantize.x) + row * quantize.x_stride +
                                                    group * 64 + lane % 4 * 16);
  uint4 raw[2] = {}, codes;
  if (row < rows) raw[0] = __ldca(from), raw[1] = __ldca(from + 1);  // as SeveralRows reads them
  const float scale = activation_scale<Format>(quantize_halves(raw, codes));
  char* to = quantize.codes + group * kCodesGroup;
  reinterpret_cast<uint4*>(to)[lane] = codes;
  if (lane % 4 == 0) reinterpret_cast<float*>(to + kMostRows * 64)[row] = scale;
}

// Rounds as the op does where it is launched by itself (kernels/rows.cu).
template <typename Shape>
__device__ __forceinline__ void compute_elements(const ElementwisePhase& phase, int rows) {
  const auto read = [](const void* from, int64_t at) {
    return __half2float(__ushort_as_half(__ldcg(static_cast<const uint16_t*>(from) + at)));
  };
#pragma unroll 1
  for (int i = int(blockIdx.x) * Shape::kThreads + int(threadIdx.x); i < rows * phase.cols;
       i += int(gridDim.x) * Shape::kThreads) {
    const int row = i / phase.cols, col = i - row * phase.cols;
    const int64_t a = int64_t(row) * phase.a_stride;
    float value;
    if (phase.op != kElementwiseOps) {
      value = apply(phase.op, read(phase.a, a + col), read(phase.b, int64_t(row) * phase.b_stride + col));
    } else {
      const int64_t gate = a + col / 16 * 32 + col % 16;
      value = silu(read(phase.a, gate)) * read(phase.a, gate + 16);
    }
    store(static_cast<__half*>(phase.y) + int64_t(row) * phase.y_stride + col, value);
  }
}

// All blocks, once what the phase reads is there.
template <typename Shape>
__device__ __forceinline__ void compute_rows(const Phase& phase, int rows) {
  if (phase.kind == Phase::Kind::Elementwise) compute_elements<Shape>(phase.elementwise, rows);
  if constexpr (Shape::kRows > 1) {
    if (phase.kind == Phase::Kind::Quantize) quantize_rows<Shape::kFormat>(phase.quantize, rows);
  }
}

}  // namespace tcim_lite::cuda::decode
