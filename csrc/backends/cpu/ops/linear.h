// Linear with everything that is fused around it: RMSNorm and quantisation before, bias, residual or SiLU-mul after.
#pragma once

#include "backends/cpu/plan.h"
#include "graph/weight_format.h"

namespace tcim_lite::cpu {

struct PreparedRows;

struct LinearStep final : Step, LinearSpec {
  LinearStep(LinearSpec spec, const WeightFinder& finder)
      : LinearSpec(std::move(spec)),
        norm_weight(finder.find<float>(norm_id)),
        weights(finder.find<uint8_t>(weights_id)),
        bias(finder.find<float>(bias_id)) {}

  const float* norm_weight;
  const uint8_t* weights;
  const float* bias;

  void run(const RunContext& context) const override;
  int64_t shared_bytes() const override;
  int64_t member_bytes() const override;

 private:
  void prepare(const RunContext& context, const PreparedRows& prepared, int64_t rows) const;
  void fetch_targets(const RunContext& context, int64_t rows, int64_t block, int64_t blocks) const;
  void finish(const RunContext& context, int64_t row, int64_t rows, int64_t block, int64_t blocks,
              const float* acc) const;
};

}  // namespace tcim_lite::cpu
