// Chains of per-head ops, and attention.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "graph/plan/planner.h"

namespace tcim_lite {

// A chain starts at a per-head RMSNorm that feeds a Rope or KVcache, or at a Rope or KVcache by itself.
bool PlanBuilder::starts_heads(const Op& op) const {
  if (op.kind == OpKind::Rope || op.kind == OpKind::KVcache) return true;
  if (op.kind != OpKind::RMSNorm || value(op.inputs[0]).shape.size() != 4) return false;
  const Op* next = values.sole_consumer(op.outputs[0]);
  return next != nullptr && (next->kind == OpKind::Rope || next->kind == OpKind::KVcache) &&
         next->inputs[0] == op.outputs[0];
}

// Whether computed tables are there already where a path of `rope` would begin.
bool PlanBuilder::has_its_tables(const Op& rope) const {
  const auto is_there = [&](uint32_t id) { return value(id).kind != ValueKind::Intermediate || values.produced(id); };
  return is_there(rope.inputs[1]) && is_there(rope.inputs[2]);
}

bool PlanBuilder::tables_are_older(const HeadChainSpec& chain, int64_t step) const {
  return values.first_step(chain.cos_id) < step && values.first_step(chain.sin_id) < step;
}

void PlanBuilder::take_computed_tables(HeadChainSpec& chain) const {
  chain.table_elem = values.elem(chain.cos_id);
  for (uint32_t* const id : {&chain.cos_id, &chain.sin_id}) {
    const Rows rows = values.rows(*id);
    if (rows.stride != rows.cols || rows.limited || values.is_state(*id)) {
      fail(ErrorCode::Unsupported, "Rope: '", value(*id).name,
           "': the planner takes no slice of a value as a table, no state, and nothing with live rows");
    }
    *id = rows.value;
  }
}

void PlanBuilder::add_heads(const Op& first) {
  HeadChainSpec chain;
  const Shape& shape = value(first.inputs[0]).shape;
  const uint32_t x = first.inputs[0];
  chain.x = values.rows(x);
  chain.heads = shape[2];
  chain.head_dim = shape[3];
  const Op* op = &first;
  const auto follow = [&](OpKind kind) {
    const Op* next = values.sole_consumer(op->outputs[0]);
    if (next == nullptr || next->kind != kind || next->inputs[0] != op->outputs[0]) return false;
    if (kind == OpKind::Rope && !has_its_tables(*next)) return false;
    absorb(*next);
    op = next;
    return true;
  };
  if (op->kind == OpKind::RMSNorm) {
    chain.norm_id = op->inputs[1];
    chain.norm_epsilon = float(op->attribute("epsilon", 1e-6));
    if (!follow(OpKind::Rope)) follow(OpKind::KVcache);
  }
  if (op->kind == OpKind::Rope) {
    const Value& table = value(op->inputs[1]);
    chain.cos_id = op->inputs[1];
    chain.sin_id = op->inputs[2];
    chain.rotary_dim = 2 * table.shape.back();
    chain.table_rows = num_elements(table.shape) / table.shape.back();
    chain.table_elem = table.dtype == DType::Float16 ? kF16 : kF32;
    chain.tables_computed = table.kind != ValueKind::Weight;
    if (chain.tables_computed) take_computed_tables(chain);
    chain.rope_valid.assign(op->inputs.begin() + 3, op->inputs.end());
    chain.rope_given = op->find("positions") != nullptr;
    for (uint32_t valid : chain.rope_valid) {
      if (!chain.rope_given) add_length_rule({valid, kNoValue}, chain.x.slot_rows, 0);
    }
    follow(OpKind::KVcache);
  }

  // The pass over the rows that came just before can take this chain too, unless it makes what the chain reads.
  const HeadsSpec* open = heads_open_ ? &std::get<HeadsSpec>(plan_.steps.back()) : nullptr;
  const bool joins = open != nullptr && open->elem == values.elem(x) && open->chains.front().x.rows == chain.x.rows &&
                     open->chains.front().x.limited == chain.x.limited && values.first_step(x) < next_step() - 1 &&
                     !values.is_state(x) && (!chain.tables_computed || tables_are_older(chain, next_step() - 1));
  const int64_t index = joins ? next_step() - 1 : next_step();
  values.reads(x, index);
  if (chain.tables_computed) {
    values.reads(chain.cos_id, index);
    values.reads(chain.sin_id, index);
  }
  if (op->kind == OpKind::KVcache) {
    for (size_t slot = 0; slot < op->outputs.size(); ++slot) {
      const uint32_t cache = op->inputs[1 + 3 * slot];
      const SlotLengths lengths{op->inputs[2 + 3 * slot], op->inputs[3 + 3 * slot]};
      const Shape& cache_shape = value(cache).shape;
      chain.caches.push_back(cache);
      chain.lengths.push_back(lengths);
      chain.cache_elem = values.elem(cache);
      chain.context = cache_shape[2];
      values.make_view(op->outputs[slot], cache, 0, num_elements(cache_shape) / cache_shape[1]);
      add_length_rule(lengths, chain.x.slot_rows, chain.context);
    }
  } else {
    values.follows(op->outputs[0], x);
    chain.y = values.rows(op->outputs[0]);
    values.writes(op->outputs[0], index);
  }
  if (!joins) append(HeadsSpec{values.elem(x), {}});
  std::get<HeadsSpec>(plan_.steps.back()).chains.push_back(std::move(chain));
}

void PlanBuilder::add_attention(AttentionSpec step, const Op& op) {
  step.q = values.rows(op.inputs[0]);
  values.follows(op.outputs[0], op.inputs[0]);
  step.y = values.rows(op.outputs[0]);
  for (size_t slot = 0; slot < step.k.size(); ++slot) {
    for (const uint32_t cache : {step.k[slot], step.v[slot]}) {
      plan_.caches.push_back({cache, step.cache_elem, step.kv_heads, step.context, step.head_dim, step.window,
                              step.lengths[slot].valid, slot, step.k.size()});
    }
  }
  HeadsAttentionSpec both;
  const bool joins = heads_open_ && values.sole_consumer(op.inputs[0]) == &op && joins_heads(step, both);
  const int64_t index = joins ? next_step() - 1 : next_step();
  values.reads(op.inputs[0], index);
  for (const uint32_t mask : step.masks) values.reads(mask, index);
  values.writes(op.outputs[0], index);
  if (!joins) return append(std::move(step));
  both.heads = std::move(std::get<HeadsSpec>(plan_.steps.back()));
  both.attention = std::move(step);
  plan_.steps.back() = std::move(both);
  plan_.step_values.back() = op.outputs[0];
  heads_open_ = false;
}

// Whether the last step's chains are those of the attention's q, k and v, and which is which.
bool PlanBuilder::joins_heads(const AttentionSpec& attention, HeadsAttentionSpec& both) const {
  const auto& chains = std::get<HeadsSpec>(plan_.steps.back()).chains;
  if (chains.size() != 3) return false;
  const auto writes = [&](const HeadChainSpec& chain, const std::vector<uint32_t>& caches) {
    const auto same = [&](uint32_t a, uint32_t b) { return values.is_same(a, b); };
    return std::equal(chain.caches.begin(), chain.caches.end(), caches.begin(), caches.end(), same) &&
           chain.lengths == attention.lengths;
  };
  const auto find = [&](const auto& is_it) {
    return size_t(std::find_if(chains.begin(), chains.end(), is_it) - chains.begin());
  };
  both.q = find([&](const HeadChainSpec& chain) { return chain.caches.empty() && chain.y.value == attention.q.value; });
  both.k = find([&](const HeadChainSpec& chain) { return writes(chain, attention.k); });
  both.v = find([&](const HeadChainSpec& chain) { return writes(chain, attention.v); });
  if (both.q == 3 || both.k == 3 || both.v == 3 || both.k == both.v) return false;
  const HeadChainSpec &q = chains[both.q], &k = chains[both.k], &v = chains[both.v];
  const auto valid_of = [](const SlotLengths& slot) { return slot.valid; };
  return v.norm_id == kNoValue && v.cos_id == kNoValue && q.cos_id == k.cos_id && q.sin_id == k.sin_id &&
         q.rope_valid == k.rope_valid && q.rope_given == k.rope_given &&
         (q.cos_id == kNoValue || q.tables_computed ||
          std::ranges::equal(q.rope_valid, attention.lengths, {}, {}, valid_of));
}

}  // namespace tcim_lite
