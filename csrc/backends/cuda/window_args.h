// Windows of convolutions and pools as their kernels take them.
#pragma once

#include <cstdlib>

#include "backends/cuda/kernels/network.h"
#include "base/error.h"
#include "graph/plan/plan.h"

namespace tcim_lite::cuda {

inline WindowAxis axis_args(const Window::Axis& axis) {
  return {int(axis.in),  int(axis.out),      int(axis.kernel),  int(axis.stride),
          int(axis.pad), int(axis.dilation), int(axis.upsample)};
}
inline WindowArgs window_args(const Window& window) { return {axis_args(window.h), axis_args(window.w)}; }

// Positions are 32-bit numbers.
inline void check_window(const Window& window, const char* op) {
  for (const Window::Axis* axis : {&window.h, &window.w}) {
    const int64_t farthest = axis->out * axis->stride + axis->kernel * axis->dilation + std::abs(axis->pad);
    if (farthest < INT32_MAX) continue;
    fail(
        ErrorCode::Unsupported, op, ": a window reaches ", farthest,
        " rows or columns far, the CUDA backend computes up to 2^31; load the model on the CPU (TCIM_LITE_DEVICE=cpu)");
  }
  if (window.out_pixels() >= INT32_MAX || window.in_pixels() >= INT32_MAX)
    fail(ErrorCode::Unsupported, op, ": planes of 2^31 elements; the CUDA backend computes smaller ones");
}

}  // namespace tcim_lite::cuda
