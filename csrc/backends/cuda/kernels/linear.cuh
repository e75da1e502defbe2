// The epilogues of a Linear: bias, then residual or SiLU-mul, with every rounding of the unfused ops.
#pragma once

#include "backends/cuda/kernels/common.cuh"
#include "backends/cuda/kernels/kernels.h"

namespace tcim_lite::cuda {

enum : int { kStore = 0, kAddResidual = 1, kSiluMul = 2 };  // LinearSpec::Epilogue

template <typename T>
__device__ __forceinline__ void finish(const LinearArgs& args, int row, int output, float acc) {
  if (args.bias != nullptr) acc += args.bias[output];
  if (args.epilogue == kAddResidual) {
    const T* residual = static_cast<const T*>(args.residual) + row * args.residual_stride;
    acc = load(residual + output) + rounded<T>(acc);
  }
  store(static_cast<T*>(args.y) + row * args.y_stride + output, acc);
}

// Column i of y, from the sums of its gate and up outputs.
template <typename T>
__device__ __forceinline__ void finish_silu(const LinearArgs& args, int row, int i, float gate, float up) {
  const int output = i / 16 * 32 + i % 16;
  if (args.bias != nullptr) {
    gate += args.bias[output];
    up += args.bias[output + 16];
  }
  store(static_cast<T*>(args.y) + row * args.y_stride + i, silu(rounded<T>(gate)) * rounded<T>(up));
}

__device__ __forceinline__ int live_rows(const LinearArgs& args) {
  return args.live == nullptr ? args.rows : min(max(*args.live, 0), args.rows);
}
__device__ __forceinline__ bool is_refused(const LinearArgs& args) {
  return args.refused != nullptr && *args.refused != 0;
}

__device__ __forceinline__ int expert_of(const ExpertsArgs& args, int pair) {
  return args.ids == nullptr ? pair % args.chosen : args.ids[pair];
}

// A token and one of its experts, as the one row of a Linear.
template <typename T>
__device__ __forceinline__ LinearArgs pair_of(const ExpertsArgs& experts, int pair, int id) {
  LinearArgs args = experts.linear;
  const int token = pair / experts.chosen, rank = pair % experts.chosen;
  const int width = args.epilogue == kSiluMul ? args.outputs / 2 : args.outputs;
  args.x = static_cast<const T*>(args.x) + token * args.x_stride + (experts.own_rows ? int64_t(rank) * args.inputs : 0);
  args.y = static_cast<T*>(args.y) + token * args.y_stride + int64_t(rank) * width;
  args.weights = static_cast<const char*>(args.weights) + id * experts.expert_bytes;
  if (args.bias != nullptr) args.bias += int64_t(id) * args.outputs;
  args.rows = 1;
  args.live = nullptr;
  return args;
}

constexpr int kScalesW4 = 512, kItemW4 = kScalesW4 + 32;  // bytes of 16 outputs and 64 inputs: codes, scales
constexpr int kItemW8 = 1024 + 16;

}  // namespace tcim_lite::cuda
