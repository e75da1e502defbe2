// Products of float matrices by panels of kPanel columns: what Conv and MatMul share.
#pragma once

#include "backends/cpu/plan.h"

namespace tcim_lite::cpu {

constexpr int64_t kPanelRows = 48;  // rows of the result whose factors are widened, and whose sums are held, at a time

// A member's scratch for products of `k` terms.
struct PanelScratch {
  PanelScratch(std::byte* base, int64_t k)
      : panel(reinterpret_cast<float*>(base)),
        acc(panel + k * kPanel),
        factors(acc + kPanelRows * kPanel),
        halves(reinterpret_cast<uint16_t*>(factors + kPanelRows * k)) {}

  static int64_t bytes(int64_t k, bool half) {
    return (k * kPanel + kPanelRows * kPanel) * 4 + (half ? kPanelRows * k * 4 + k * kPanel * 2 : 0);
  }

  float* panel;      // [k, kPanel]
  float* acc;        // [kPanelRows, kPanel]
  float* factors;    // [kPanelRows, k], of fp16
  uint16_t* halves;  // [k, kPanel], of fp16
};

// Rows [row, row + rows) of `factors` times the panel, into acc.
inline void multiply_panel(const RunContext& context, Elem elem, const std::byte* factors, int64_t row, int64_t rows,
                           int64_t k, const float* panel, const PanelScratch& scratch) {
  const std::byte* source = factors + row * k * elem_bytes(elem);
  const auto* a = reinterpret_cast<const float*>(source);
  if (elem == kF16) {
    context.kernels.widen[kF16]({source, scratch.factors, 1, rows * k, rows * k, rows * k, 1.0f});
    a = scratch.factors;
  }
  context.kernels.gemm({a, panel, scratch.acc, rows, k, k});
}

}  // namespace tcim_lite::cpu
