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

struct ElementwiseStep final : Step, ElementwiseSpec {
  ElementwiseStep(ElementwiseSpec spec, const WeightFinder&) : ElementwiseSpec(std::move(spec)) {}
  void run(const RunContext& context) const override;
};

struct SiluMulStep final : Step, SiluMulSpec {
  SiluMulStep(SiluMulSpec spec, const WeightFinder&) : SiluMulSpec(std::move(spec)) {}
  void run(const RunContext& context) const override;
};

struct GatherRowStep final : Step, GatherRowSpec {
  GatherRowStep(GatherRowSpec spec, const WeightFinder&) : GatherRowSpec(std::move(spec)) {}
  void run(const RunContext& context) const override;
};

struct CopyStep final : Step, CopySpec {
  CopyStep(CopySpec spec, const WeightFinder&) : CopySpec(std::move(spec)) {}
  void run(const RunContext& context) const override;
};

}  // namespace tcim_lite::cpu
