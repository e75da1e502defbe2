// Mixture of experts: the choice of the experts of a row, their Linears, and the weighted sum of the results. Reads the
// matrices of chosen experts only, each once a run for all rows that chose it.
#pragma once

#include "backends/cpu/plan.h"

namespace tcim_lite::cpu {

struct PreparedRows;

struct MoERouteStep final : Step, MoERouteSpec {
  MoERouteStep(MoERouteSpec spec, const WeightFinder& finder)
      : MoERouteSpec(std::move(spec)), bias(finder.find<float>(bias_id)) {}

  const float* bias;  // [experts]

  void run(const RunContext& context) const override;
  int64_t member_bytes() const override { return experts * 8 + groups * 8; }

 private:
  void route(const RunContext& context, int64_t row, float* scratch) const;
  float exp_sum(const RunContext& context, float* values) const;
  void mix(const RunContext& context, const int32_t* id, float* logit, float* share) const;
  void score(const RunContext& context, float* logit, float* share) const;
  void keep_groups(const float* logit, float* best, int32_t* kept) const;
};

struct MoELinearStep final : Step, MoELinearSpec {
  MoELinearStep(MoELinearSpec spec, const WeightFinder& finder)
      : MoELinearSpec(std::move(spec)),
        weights(finder.find<uint8_t>(linear.weights_id)),
        bias(finder.find<float>(linear.bias_id)) {}

  const uint8_t* weights;  // [experts] packed [outputs, inputs]
  const float* bias;       // [experts, outputs]

  void run(const RunContext& context) const override;
  int64_t shared_bytes() const override;
  int64_t member_bytes() const override;

 private:
  struct Grouped;
  Grouped group(const RunContext& context, int64_t tokens) const;
  void prepare(const RunContext& context, const Grouped& grouped, const PreparedRows& prepared, int64_t tokens) const;
  void finish(const RunContext& context, int64_t pair, int64_t expert, int64_t block, int64_t blocks,
              const float* acc) const;
};

struct MoECombineStep final : Step, MoECombineSpec {
  MoECombineStep(MoECombineSpec spec, const WeightFinder&) : MoECombineSpec(std::move(spec)) {}
  void run(const RunContext& context) const override;
  int64_t member_bytes() const override { return chosen * 4; }
};

}  // namespace tcim_lite::cpu
