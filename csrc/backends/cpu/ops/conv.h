// Conv, MatMul and the pools: products and folds over panels of 32 outputs.
#pragma once

#include "backends/cpu/ops/dense_steps.h"

namespace tcim_lite::cpu {

struct ConvStep final : Step, ConvSpec {
  ConvStep(ConvSpec spec, const WeightFinder& finder)
      : ConvSpec(std::move(spec)),
        weights(finder.find<std::byte>(weights_id)),
        bias(finder.find<float>(bias_id)),
        added(residual, finder) {}

  const std::byte* weights;
  const float* bias;
  Bytes added;
  void run(const RunContext& context) const override;
  int64_t member_bytes() const override;

 private:
  // Output channels [row, row + rows) of a group, for up to kPanel pixels of an image.
  struct Task {
    int64_t image, group, pixel, row, rows;
  };
  void run_task(const RunContext& context, const Task& task, int member) const;
  // What the pixels read, [inputs, kPanel] as T.
  template <typename T>
  void unfold_inputs(const RunContext& context, const Task& task, int64_t count, T* panel) const;
  // Sums [rows, kPanel] of channels from `channel` on become elements of y.
  void store(const RunContext& context, const Task& task, int64_t channel, int64_t rows, const float* acc) const;
  int64_t quantized_bytes() const;
  void run_quantized(const RunContext& context, const Task& task, int member) const;
};

struct MatMulStep final : Step, MatMulSpec {
  MatMulStep(MatMulSpec spec, const WeightFinder& finder)
      : MatMulSpec(std::move(spec)), left(a, finder), right(b, finder) {}

  Bytes left, right;
  void run(const RunContext& context) const override;
  int64_t member_bytes() const override;
};

struct PoolStep final : Step, PoolSpec {
  PoolStep(PoolSpec spec, const WeightFinder&) : PoolSpec(std::move(spec)) {}
  void run(const RunContext& context) const override;
  int64_t member_bytes() const override;
};

}  // namespace tcim_lite::cpu
