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
  if (op.kind != OpKind::RMSNorm || graph_.values[op.inputs[0]].shape.size() != 4) return false;
  const Op* next = values_.sole_consumer(op.outputs[0]);
  return next != nullptr && (next->kind == OpKind::Rope || next->kind == OpKind::KVcache) &&
         next->inputs[0] == op.outputs[0];
}

void PlanBuilder::add_heads(const Op& first) {
  HeadChainSpec chain;
  const Shape& shape = graph_.values[first.inputs[0]].shape;
  const uint32_t x = first.inputs[0];
  chain.x = values_.rows(x);
  chain.heads = shape[2];
  chain.head_dim = shape[3];
  const Op* op = &first;
  const auto follow = [&](OpKind kind) {
    const Op* next = values_.sole_consumer(op->outputs[0]);
    if (next == nullptr || next->kind != kind || next->inputs[0] != op->outputs[0]) return false;
    done_.insert(next);
    op = next;
    return true;
  };
  if (op->kind == OpKind::RMSNorm) {
    chain.norm_id = op->inputs[1];
    chain.norm_epsilon = float(op->attribute("epsilon", 1e-6));
    if (!follow(OpKind::Rope)) follow(OpKind::KVcache);
  }
  if (op->kind == OpKind::Rope) {
    const Value& table = graph_.values[op->inputs[1]];
    chain.cos_id = op->inputs[1];
    chain.sin_id = op->inputs[2];
    chain.table_elem = table.dtype == DType::Float16 ? kF16 : kF32;
    chain.table_rows = table.shape[0];
    chain.rope_valid.assign(op->inputs.begin() + 3, op->inputs.end());
    for (uint32_t valid : chain.rope_valid) add_length_rule({valid, kNoValue}, chain.x.slot_rows, 0);
    follow(OpKind::KVcache);
  }

  // The pass over the rows that came just before can take this chain too, unless it makes what the chain reads.
  const HeadsSpec* open = heads_open_ ? &std::get<HeadsSpec>(plan_.steps.back()) : nullptr;
  const bool joins = open != nullptr && open->elem == values_.elem(x) && open->chains.front().x.rows == chain.x.rows &&
                     open->chains.front().x.limited == chain.x.limited && values_.first_step(x) < next_step() - 1 &&
                     !values_.is_cache(x);
  const int64_t index = joins ? next_step() - 1 : next_step();
  values_.reads(x, index);
  if (op->kind == OpKind::KVcache) {
    for (size_t slot = 0; slot < op->outputs.size(); ++slot) {
      const uint32_t cache = op->inputs[1 + 3 * slot];
      const SlotLengths lengths{op->inputs[2 + 3 * slot], op->inputs[3 + 3 * slot]};
      const Shape& cache_shape = graph_.values[cache].shape;
      chain.caches.push_back(cache);
      chain.lengths.push_back(lengths);
      chain.cache_elem = values_.elem(cache);
      chain.context = cache_shape[2];
      values_.make_view(op->outputs[slot], cache, 0, num_elements(cache_shape) / cache_shape[1]);
      add_length_rule(lengths, chain.x.slot_rows, chain.context);
    }
  } else {
    values_.follows(op->outputs[0], x);
    chain.y = values_.rows(op->outputs[0]);
    values_.writes(op->outputs[0], index);
  }
  if (!joins) append(HeadsSpec{values_.elem(x), {}});
  std::get<HeadsSpec>(plan_.steps.back()).chains.push_back(std::move(chain));
}

void PlanBuilder::add_attention(const Op& op) {
  AttentionSpec step;
  const Shape& q = graph_.values[op.inputs[0]].shape;
  const Shape& cache = graph_.values[op.inputs[1]].shape;
  step.elem = values_.elem(op.inputs[0]);
  step.cache_elem = values_.elem(op.inputs[1]);
  step.q = values_.rows(op.inputs[0]);
  values_.follows(op.outputs[0], op.inputs[0]);
  step.y = values_.rows(op.outputs[0]);
  step.q_heads = q[2];
  step.head_dim = q[3];
  step.kv_heads = cache[1];
  step.context = cache[2];
  if (step.q_heads / step.kv_heads > kMaxHeadsPerKv) {
    fail(ErrorCode::Unsupported, "FlashAttention: ", step.q_heads, " query heads over ", step.kv_heads,
         " KV heads; backends share a KV head among at most ", kMaxHeadsPerKv);
  }
  // The default is the fp32 value nearest to 1/sqrt(D).
  const double scale = op.attribute("scale", -1.0);
  step.scale = float(scale > 0 ? scale : 1.0 / std::sqrt(double(step.head_dim)));
  for (size_t i = 1; i + 3 < op.inputs.size(); i += 4) {
    step.k.push_back(op.inputs[i]);
    step.v.push_back(op.inputs[i + 1]);
    step.lengths.push_back({op.inputs[i + 2], op.inputs[i + 3]});
    add_length_rule(step.lengths.back(), step.q.slot_rows, step.context);
  }
  HeadsAttentionSpec both;
  const bool joins = heads_open_ && values_.sole_consumer(op.inputs[0]) == &op && joins_heads(step, both);
  const int64_t index = joins ? next_step() - 1 : next_step();
  values_.reads(op.inputs[0], index);
  values_.writes(op.outputs[0], index);
  if (!joins) return append(std::move(step));
  both.heads = std::move(std::get<HeadsSpec>(plan_.steps.back()));
  both.attention = std::move(step);
  plan_.steps.back() = std::move(both);
  heads_open_ = false;
}

// Whether the last step's chains are those of the attention's q, k and v, and which is which.
bool PlanBuilder::joins_heads(const AttentionSpec& attention, HeadsAttentionSpec& both) const {
  const auto& chains = std::get<HeadsSpec>(plan_.steps.back()).chains;
  if (chains.size() != 3) return false;
  const auto writes = [&](const HeadChainSpec& chain, const std::vector<uint32_t>& caches) {
    const auto same = [&](uint32_t a, uint32_t b) { return values_.is_same(a, b); };
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
         q.rope_valid == k.rope_valid &&
         (q.cos_id == kNoValue || std::ranges::equal(q.rope_valid, attention.lengths, {}, {}, valid_of));
}

}  // namespace tcim_lite
