// Linear attention: a convolution and a recurrence, each with a state of fixed size that the graph takes and returns.
// The new state may lie where the state does.
#pragma once

#include "backends/cpu/plan.h"

namespace tcim_lite::cpu {

constexpr int64_t kConvChannels = 256;  // of a task

struct CausalConvStep final : Step, CausalConvSpec {
  CausalConvStep(CausalConvSpec spec, const WeightFinder& finder)
      : CausalConvSpec(std::move(spec)), weight(finder.find<float>(weight_id)), bias(finder.find<float>(bias_id)) {}

  const float *weight, *bias;
  void run(const RunContext& context) const override;
  int64_t member_bytes() const override { return 2 * columns * kConvChannels * elem_bytes(elem); }
};

struct DeltaRuleStep final : Step, DeltaRuleSpec {
  DeltaRuleStep(DeltaRuleSpec spec, const WeightFinder& finder)
      : DeltaRuleSpec(std::move(spec)),
        rate(finder.find<float>(rate_id)),
        bias(finder.find<float>(bias_id)),
        skip(finder.find<float>(skip_id)) {}

  const float *rate, *bias, *skip;
  void run(const RunContext& context) const override;
  int64_t member_bytes() const override { return delta_rule_floats(keys, values) * int64_t(sizeof(float)); }
};

template <>
void PlainStep<GateMulSpec>::run(const RunContext& context) const;

}  // namespace tcim_lite::cpu
