// MatMul, or attention as one step.
#pragma once

#include "backends/cpu/ops/dense_steps.h"

namespace tcim_lite::cpu {

struct MatMulStep final : Step, MatMulSpec {
  MatMulStep(MatMulSpec spec, const WeightFinder& finder)
      : MatMulSpec(std::move(spec)), left(softmax_of.empty() ? a : softmax_of.front().a, finder), right(b, finder) {
    if (!softmax_of.empty()) scores_right = Bytes(softmax_of.front().b, finder);
  }

  Bytes left, right, scores_right;  // left and scores_right: of the scores, where there are any
  void run(const RunContext& context) const override;
  int64_t member_bytes() const override;

 private:
  void run_few_rows(const RunContext& context) const;
  void run_attention(const RunContext& context) const;
};

}  // namespace tcim_lite::cpu
