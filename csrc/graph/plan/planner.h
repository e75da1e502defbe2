// The builder behind build_plan(): one pass over the ops, each becoming a step, a view, or part of an earlier step.
// What an op becomes is in its graph/ops/<op>.cpp, which writes it with the functions here.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "graph/plan/plan.h"
#include "graph/plan/plan_values.h"

namespace tcim_lite {

class PlanBuilder {
 public:
  PlanBuilder(const Graph& graph, Numerics numerics, Joins joins)
      : values(graph, numerics == Numerics::Float), graph_(graph), numerics_(numerics), joins_(joins) {}

  Plan build(const OwnForms& own_forms);

  PlanValues values;

  const Value& value(uint32_t id) const { return graph_.values[id]; }
  Numerics numerics() const { return numerics_; }
  Joins joins() const { return joins_; }

  // The time of the next step or gather, for lifetimes.
  int64_t next_step() const { return int64_t(plan_.steps.size() + plan_.gathers.size()); }
  void append(StepSpec step);
  void append_gather(Plan::Gather gather);
  // The rows of a value that the next step writes; rows that `x` does not reach are not computed.
  Rows result(uint32_t y, uint32_t x);
  // `op` is part of a step already; it makes none of its own.
  void absorb(const Op& op) { absorbed_.insert(&op); }
  void add_length_rule(SlotLengths slot, int64_t tokens, int64_t context);
  // The next step reads rows of a table of `rows` at `positions`, if that is such an input.
  void add_position_rule(uint32_t positions, int64_t rows);

  // An RMSNorm that only the Linear after it reads is that Linear's prologue.
  void defer_norm(const Op& norm) { norms_.emplace(norm.outputs[0], &norm); }
  // The deferred norm that makes `x`; null when there is none.
  const Op* prologue_norm(uint32_t x) const;

  // A MatMul whose result only a Softmax reads, and that one's a MatMul, is part of the latter.
  void defer_scores(const Op& scores, uint32_t softmax) { scores_.emplace(softmax, &scores); }
  // The deferred MatMul whose Softmax makes `x`; null when there is none.
  const Op* scores_of(uint32_t x) const;

  // A Transpose that only a MatMul of few rows reads, as its right side, is part of the latter.
  void defer_transpose(const Op& transpose) { transposes_.emplace(transpose.outputs[0], &transpose); }
  // The deferred Transpose that makes `x`; null when there is none.
  const Op* transpose_of(uint32_t x) const;

  // Whether a path of per-head ops begins at `op`: RMSNorm, Rope, KVcache, each if it is there.
  bool starts_heads(const Op& op) const;
  void add_heads(const Op& first);
  // `op` with its lengths and caches in `step`; q, y and the lifetimes are added here.
  void add_attention(AttentionSpec step, const Op& op);

 private:
  void add_inputs();
  void add_op(const Op& op);
  void add_outputs();
  void find_updates();
  void find_updates(uint32_t from, const std::vector<uint32_t>& to, size_t time);
  uint32_t updated_input(const BroadcastSpec& step, int64_t time) const;
  void check_state_dtypes(const Op& op) const;
  bool joins_heads(const AttentionSpec& attention, HeadsAttentionSpec& both) const;
  bool has_its_tables(const Op& rope) const;
  bool tables_are_older(const HeadChainSpec& chain, int64_t step) const;
  void take_computed_tables(HeadChainSpec& chain) const;

  const Graph& graph_;
  const Numerics numerics_;
  const Joins joins_;
  Plan plan_;
  std::set<const Op*> absorbed_;
  std::map<uint32_t, const Op*> norms_;       // by output
  std::map<uint32_t, const Op*> scores_;      // by the output of the Softmax
  std::map<uint32_t, const Op*> transposes_;  // by output
  const Op* current_ = nullptr;               // that becomes a step now
  bool heads_open_ = false;                   // the last step is a HeadsSpec that can take another path
};

}  // namespace tcim_lite
