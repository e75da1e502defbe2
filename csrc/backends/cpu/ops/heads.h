// What happens to q, k and v between the merged projection and attention, head by head and row by row: RMSNorm, RoPE,
// then a store or the write into the caches. The chains of one layer share a pass over the rows.
#pragma once

#include <vector>

#include "backends/cpu/plan.h"

namespace tcim_lite::cpu {

struct HeadChain : HeadChainSpec {
  HeadChain(HeadChainSpec spec, const WeightFinder& finder)
      : HeadChainSpec(std::move(spec)),
        norm_weight(finder.find<float>(norm_id)),
        cos(tables_computed ? nullptr : finder.find<std::byte>(cos_id)),
        sin(tables_computed ? nullptr : finder.find<std::byte>(sin_id)) {}

  const float* norm_weight;
  const std::byte* cos;  // null where it is computed
  const std::byte* sin;
};

struct HeadsStep final : Step {
  HeadsStep(HeadsSpec spec, const WeightFinder& finder) : elem(spec.elem) {
    for (HeadChainSpec& chain : spec.chains) chains.emplace_back(std::move(chain), finder);
  }

  Elem elem;
  std::vector<HeadChain> chains;

  void run(const RunContext& context) const override;
  int64_t member_bytes() const override;

 private:
  void run_row(const RunContext& context, const HeadChain& chain, int64_t row, std::byte* scratch) const;
};

}  // namespace tcim_lite::cpu
