// The builder behind build_plan(): one pass over the ops, each becoming a step, a view, or part of an earlier step.
// Internal to planner.cpp (the pass and the graph's edges), planner_ops.cpp and planner_heads.cpp.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "graph/plan/plan.h"
#include "graph/plan/plan_values.h"

namespace tcim_lite {

class PlanBuilder {
 public:
  PlanBuilder(const Graph& graph, bool float_math)
      : graph_(graph), float_math_(float_math), values_(graph, float_math) {}

  Plan build();

 private:
  // The time of the next step or gather, for lifetimes.
  int64_t next_step() const { return int64_t(plan_.steps.size() + plan_.gathers.size()); }
  void append(StepSpec step) {
    heads_open_ = std::holds_alternative<HeadsSpec>(step);
    plan_.steps.push_back(std::move(step));
  }
  bool is_done(const Op& op) const { return done_.count(&op) != 0; }

  void add_inputs();
  void check_cache_readers(const Op& op) const;
  void add_op(const Op& op);
  void add_linear(const Op& op);
  void add_heads(const Op& first);
  void add_attention(const Op& op);
  bool joins_heads(const AttentionSpec& attention, HeadsAttentionSpec& both) const;
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
  const bool float_math_;
  PlanValues values_;
  Plan plan_;
  std::set<const Op*> done_;             // fused into an earlier step
  std::map<uint32_t, const Op*> norms_;  // RMSNorm outputs that their Linear computes
  bool heads_open_ = false;              // the last step is a HeadsSpec that can take another chain
};

}  // namespace tcim_lite
