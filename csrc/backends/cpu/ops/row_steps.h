// The ops that stand alone when nothing absorbs them: each row by itself.
#pragma once

#include "backends/cpu/plan.h"

namespace tcim_lite::cpu {

struct RmsNormStep final : Step, RmsNormSpec {
  RmsNormStep(RmsNormSpec spec, const WeightFinder& finder)
      : RmsNormSpec(std::move(spec)), weight(finder.find<float>(weight_id)) {}

  const float* weight;
  void run(const RunContext& context) const override;
};

template <>
void PlainStep<ElementwiseSpec>::run(const RunContext& context) const;
template <>
void PlainStep<SiluMulSpec>::run(const RunContext& context) const;
template <>
void PlainStep<GatherRowSpec>::run(const RunContext& context) const;
template <>
void PlainStep<CopySpec>::run(const RunContext& context) const;

}  // namespace tcim_lite::cpu
