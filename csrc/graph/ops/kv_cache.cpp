#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

// After `new`, each slot has its cache, valid and current.
std::vector<StateOperand> states_of_kv_cache(const Op& op) {
  std::vector<StateOperand> found;
  for (size_t i = 1; i + 2 < op.inputs.size(); i += 3) found.push_back({i, i / 3, i + 1, i + 2});
  return found;
}

void check_kv_cache(const OpCheck& op) {
  const Value& fresh = op.first_input();
  const DType dtype = op.tensor(fresh);
  op.attributes({});
  if (fresh.kind == ValueKind::State) op.refuse("'", fresh.name, "' is ", describe(fresh), ", expected new rows");
  const size_t num_slots = op.slots(fresh, 1, 3);
  op.arity(1 + 3 * num_slots, 1 + 3 * num_slots, num_slots);
  for (const StateOperand& state : states_of_kv_cache(op.op())) {
    const Value& cache = op.input(state.input);
    if (cache.kind != ValueKind::State) op.refuse("'", cache.name, "' is ", describe(cache), ", expected a state");
    op.rank(cache, 4);
    op.context_length(cache, cache.shape[2]);
    op.expect(cache, dtype, {1, fresh.shape[2], cache.shape[2], fresh.shape[3]});
    op.length(op.input(state.valid));
    op.length(op.input(state.current));
    op.expect(op.output(state.output), dtype, cache.shape);
  }
}

void plan_kv_cache(PlanBuilder& plan, const Op& op) { plan.add_heads(op); }

}  // namespace

extern const OpDefinition KVcache = {
    "new [B, T, heads, D] T, then per slot: cache [1, heads, C, D] T, valid int32 [1], current int32 [1] "
    "-> per slot the updated cache",
    "writes rows [valid, valid + current) of each cache; the result is the same storage",
    Cut::Heads,
    check_kv_cache,
    plan_kv_cache,
    states_of_kv_cache,
    0};

}  // namespace tcim_lite::ops
