// The builder behind build_plan(): one pass over the ops, each becoming a step, a view, or part of an earlier step.
// Internal to plan_builder.cpp (the pass and the graph's edges), plan_ops.cpp and plan_heads.cpp.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "backends/cpu/ops/heads.h"
#include "backends/cpu/plan_builder.h"
#include "backends/cpu/plan_values.h"

namespace tcim_lite::cpu {

class PlanBuilder {
 public:
  PlanBuilder(const Graph& graph, const std::vector<WeightBytes>& weights, bool float_math)
      : graph_(graph), weights_(weights), float_math_(float_math), values_(graph, float_math) {}

  Plan build();

 private:
  // The time of the next step or gather, for lifetimes.
  int64_t next_step() const { return int64_t(plan_.steps.size() + plan_.gathers.size()); }
  template <typename StepType>
  StepType& append(std::unique_ptr<StepType> step);
  bool is_done(const Op& op) const { return done_.count(&op) != 0; }

  template <typename T>
  const T* weight(uint32_t id) const {
    return reinterpret_cast<const T*>(weights_[graph_.values[id].weight].data());
  }

  void add_inputs();
  void check_cache_readers(const Op& op) const;
  void add_op(const Op& op);
  void add_linear(const Op& op);
  void add_heads(const Op& first);
  void add_attention(const Op& op);
  void add_norm(const Op& op);
  void add_add(const Op& op);
  void add_silu_mul(const Op& op);
  void add_gather(const Op& op);
  void add_view(const Op& op);
  void add_all_gather(const Op& op);
  void add_outputs();
  void add_length_rule(SlotLengths slot, int64_t tokens, int64_t context);
  bool starts_heads(const Op& op) const;

  const Graph& graph_;
  const std::vector<WeightBytes>& weights_;
  const bool float_math_;
  PlanValues values_;
  Plan plan_;
  std::set<const Op*> done_;             // fused into an earlier step
  std::map<uint32_t, const Op*> norms_;  // RMSNorm outputs that their Linear computes
  HeadsStep* open_heads_ = nullptr;      // the last step, when it can take another chain
};

template <typename StepType>
StepType& PlanBuilder::append(std::unique_ptr<StepType> step) {
  StepType& added = *step;
  open_heads_ = nullptr;
  plan_.steps.push_back(std::move(step));
  return added;
}

}  // namespace tcim_lite::cpu
