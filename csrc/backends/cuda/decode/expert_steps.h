// The steps of a plan that are a mixture of experts, as decode in one launch computes them: phases that leave nothing
// of what lies between them in the plan's memory.
#pragma once

#include <cstddef>
#include <optional>

#include "graph/plan/plan.h"

namespace tcim_lite::cuda::decode {

// Norm, router, route, gate and up, perhaps their clamped product, down, combine: consecutive steps.
struct ExpertSteps {
  const RmsNormSpec* norm;
  const LinearSpec* router;
  const MoERouteSpec* route;
  const MoELinearSpec* gate_up;
  const SiluMulSpec* clamped;  // null: gate_up has SiLU-mul
  const MoELinearSpec* down;
  const MoECombineSpec* combine;
  size_t count;  // of steps
};

// Those from step `first` on, of a single row of fp16, if nothing else uses what they hand to each other and the
// residual is what the norm reads.
std::optional<ExpertSteps> find_experts(const Plan& plan, size_t first);

}  // namespace tcim_lite::cuda::decode
