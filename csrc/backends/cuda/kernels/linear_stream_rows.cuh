// The prologue of a streamed Linear: its rows into shared memory, normalised, and quantised where weights are.
#pragma once

#include "backends/cuda/kernels/linear.cuh"
#include "backends/cuda/kernels/quantize.cuh"

namespace tcim_lite::cuda {
namespace stream {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;

// Bytes between rows of activations in shared memory: 64 beyond a multiple of 128, so that two rows fill all banks.
__host__ __device__ constexpr int row_bytes(WeightFormat format, int inputs) {
  const int bytes = format == WeightFormat::LinearF16 ? 2 * inputs : inputs;
  return bytes % 128 == 0 ? bytes + 64 : bytes;
}

struct Pass {
  int first_row, rows, tiles;
};

// Elements k .. k + 7 of a row into shared memory: normalised, and quantised where weights are. Whole warps.
template <WeightFormat Format>
__device__ __forceinline__ void prepare_eight(const LinearArgs& args, uint4 raw, int k, float inverse, char* x,
                                              float* scales) {
  const bool inside = k < args.inputs;
  if (args.norm_weight != nullptr && inside) {
    float v[8], weight[8];
    load8(reinterpret_cast<const __half*>(&raw), v);
    load8_weights(args.norm_weight + k, weight);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = v[i] * inverse * weight[i];
    raw = saturated_halves(v);
  }
  store_activations<Format>(raw, k, inside, x, scales);
}

// Calls use(halves, k) for every eight elements of a row, with several loads in flight: nothing else hides their
// latency.
template <typename Use>
__device__ __forceinline__ void for_each_eight(const LinearArgs& args, int row, int thread, int threads,
                                               const Use& use) {
  constexpr int kAtOnce = 8;
  const __half* from = static_cast<const __half*>(args.x) + row * args.x_stride;
  for (int first = 0; first < args.inputs; first += kAtOnce * threads * 8) {
    uint4 raw[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int k = first + (i * threads + thread) * 8;
      raw[i] = k < args.inputs ? *reinterpret_cast<const uint4*>(from + k) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int begin = first + i * threads * 8;
      if (begin >= args.inputs) break;
      use(raw[i], begin + thread * 8);
    }
  }
}

// One row into shared memory: normalised, and quantised where weights are. `thread` of `threads`, whole warps.
template <WeightFormat Format>
__device__ __forceinline__ void prepare_row(const LinearArgs& args, int row, float inverse, char* x, float* scales,
                                            int thread, int threads) {
  for_each_eight(args, row, thread, threads,
                 [&](const uint4& raw, int k) { prepare_eight<Format>(args, raw, k, inverse, x, scales); });
}

__device__ __forceinline__ float sum_of_squares(const LinearArgs& args, int row, int thread, int threads) {
  float sum = 0;
  for_each_eight(args, row, thread, threads, [&](const uint4& raw, int) {
    float v[8];
    load8(reinterpret_cast<const __half*>(&raw), v);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(v[i], v[i], sum);
  });
  return sum;
}

template <WeightFormat Format, bool One>
__device__ __forceinline__ void prepare_rows(const LinearArgs& args, const Pass& pass, int rows, char* x, float* scales,
                                             float* scratch) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, stride = row_bytes(Format, args.inputs);
  const bool norm = args.norm_weight != nullptr;
  const auto inverse_of = [&](float sum) { return 1.0f / sqrtf(sum / float(args.inputs) + args.epsilon); };
  if constexpr (One) {
    constexpr int kKept = 6;  // pieces of the row that a thread keeps
    if (args.inputs <= kKept * kThreads * 8) {
      const __half* from = static_cast<const __half*>(args.x) + pass.first_row * args.x_stride;
      uint4 kept[kKept];
#pragma unroll
      for (int i = 0; i < kKept; ++i) {
        const int k = (i * kThreads + int(threadIdx.x)) * 8;
        if (k < args.inputs) kept[i] = *reinterpret_cast<const uint4*>(from + k);
      }
      float inverse = 1;
      if (norm) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kKept; ++i) {
          if ((i * kThreads + int(threadIdx.x)) * 8 >= args.inputs) continue;
          float v[8];
          load8(reinterpret_cast<const __half*>(&kept[i]), v);
#pragma unroll
          for (int j = 0; j < 8; ++j) sum = fmaf(v[j], v[j], sum);
        }
        inverse = inverse_of(block_sum(sum, scratch));
      }
#pragma unroll
      for (int i = 0; i < kKept; ++i) {
        if (i * kThreads * 8 >= args.inputs) break;
        const int k = (i * kThreads + int(threadIdx.x)) * 8;
        prepare_eight<Format>(args, k < args.inputs ? kept[i] : make_uint4(0, 0, 0, 0), k, inverse, x, scales);
      }
      __syncthreads();
      return;
    }
    float inverse = 1;
    if (norm) inverse = inverse_of(block_sum(sum_of_squares(args, pass.first_row, threadIdx.x, kThreads), scratch));
    prepare_row<Format>(args, pass.first_row, inverse, x, scales, threadIdx.x, kThreads);
  } else {
    for (int row = warp; row < rows; row += kWarps) {
      float inverse = 1;
      if (norm) inverse = inverse_of(warp_sum(sum_of_squares(args, pass.first_row + row, lane, 32)));
      prepare_row<Format>(args, pass.first_row + row, inverse, x + row * stride, scales + row * (args.inputs / 64),
                          lane, 32);
    }
  }
  __syncthreads();
}

}  // namespace stream
}  // namespace tcim_lite::cuda
