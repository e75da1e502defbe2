// MaxPool and AveragePool, from planes with their padding around them, over panels of 32 outputs or, as in residual
// networks, from planes where they lie.
#pragma once

#include "backends/cpu/ops/dense_steps.h"

namespace tcim_lite::cpu {

struct PoolStep final : Step, PoolSpec {
  PoolStep(PoolSpec spec, const WeightFinder& finder)
      : PoolSpec(std::move(spec)), x_in_blocks(finder.in_blocks(x)), y_in_blocks(finder.in_blocks(y)) {}
  const bool x_in_blocks, y_in_blocks;
  void run(const RunContext& context) const override;
  int64_t shared_bytes() const override;
  int64_t member_bytes() const override;

 private:
  bool is_in_place() const;
  void run_in_place(const RunContext& context) const;
  void run_blocks(const RunContext& context) const;
  void run_bands(const RunContext& context) const;
  void run_panels(const RunContext& context) const;
  // The taps that count for each of `count` outputs from `pixel` on.
  void count(int64_t pixel, int64_t count, float* counts) const;
};

}  // namespace tcim_lite::cpu
