#include "graph/plan/plan_values.h"

#include <algorithm>

#include "graph/memory_plan.h"
#include "graph/ops/op_definition.h"

namespace tcim_lite {
namespace {

// [B, T, ...] has B * T rows; [N, ..] of rank 1 or 2 has N rows or one.
Rows form_of(const Graph& graph, uint32_t id) {
  const Shape& shape = graph.values[id].shape;
  Rows rows;
  rows.value = id;
  rows.rows = shape.size() >= 3 ? shape[0] * shape[1] : shape.size() == 2 ? shape[0] : 1;
  rows.cols = num_elements(shape) / rows.rows;
  rows.stride = rows.cols;
  rows.slot_rows = shape.size() >= 3 ? shape[1] : rows.rows;
  // Of inputs; what ops produce follows what they read. A mask [1, 1, T, S] has no tokens on axis 1.
  const bool has_tokens = shape.size() == 3 || (shape.size() > 3 && shape[1] > 1);
  rows.limited =
      graph.live_rows != kNoValue && graph.values[id].kind == ValueKind::Input && has_tokens && shape[0] == 1;
  return rows;
}

}  // namespace

PlanValues::PlanValues(const Graph& graph, bool float_math) : graph_(graph) {
  const size_t count = graph.values.size();
  consumers_.resize(count);
  last_consumer_.resize(count);
  lives_.resize(count);
  ports_.resize(count);
  offsets_.resize(count);
  parts_.resize(count);
  for (uint32_t id = 0; id < count; ++id) {
    const Value& value = graph.values[id];
    const bool widened = float_math && value.kind == ValueKind::Intermediate;
    elems_.push_back(value.dtype == DType::Float16 && !widened ? kF16 : kF32);
    rows_.push_back(form_of(graph, id));
    roots_.push_back(id);
    alias_.push_back(id);
  }
  for (const Op& op : graph.ops) {
    for (uint32_t id : op.inputs) {
      ++consumers_[id];
      last_consumer_[id] = &op;
    }
  }
  const std::vector<bool> is_carried = carried_values(graph);  // without tokens
  for (uint32_t id = 0; id < count; ++id) rows_[id].limited &= !is_carried[id];
  for (uint32_t id : graph.outputs) consumers_[id] += 2;  // never sole
}

void PlanValues::make_view(uint32_t out, uint32_t x, int64_t offset, int64_t cols) {
  const uint32_t source = alias_[x];
  const Rows form = rows_[out];
  rows_[out] = rows_[source];
  rows_[out].value = out;
  rows_[out].cols = cols;
  rows_[out].slot_rows = form.slot_rows;
  if (form.rows != rows_[out].rows) rows_[out] = form;  // a Reshape of a dense value to other rows
  elems_[out] = elems_[source];
  roots_[out] = roots_[source];
  offsets_[out] = offsets_[source] + offset * elem_bytes(elems_[source]);
}

uint32_t PlanValues::add_copy(const Rows& like, Elem elem) {
  const uint32_t id = uint32_t(rows_.size());
  Rows rows = like;
  rows.value = id;
  rows.stride = rows.cols;
  rows_.push_back(rows);
  elems_.push_back(elem);
  roots_.push_back(id);
  alias_.push_back(id);
  offsets_.push_back(0);
  parts_.emplace_back();
  lives_.emplace_back();
  ports_.emplace_back();
  consumers_.push_back(2);
  last_consumer_.push_back(nullptr);
  return id;
}

void PlanValues::place_within(uint32_t id, uint32_t whole, int64_t offset) {
  const int64_t bytes = offset * elem_bytes(elems_[whole]);
  if (is_view(id) || alias_[id] != id || elems_[id] != elems_[whole] || bytes % int64_t(kArenaAlignment) != 0) return;
  if (parts_[id].whole == kNoValue) parts_[id] = {whole, bytes};
}

void PlanValues::place(uint32_t id, Plan::Place place, uint32_t port) { ports_[id] = {place, port, 0}; }

void PlanValues::reads(uint32_t id, int64_t step) {
  Life& life = lives_[root_of(id)];
  life.last = std::max(life.last, step);
}

void PlanValues::writes(uint32_t id, int64_t step) {
  Life& life = lives_[root_of(id)];
  if (life.first < 0) life.first = step;
  life.last = std::max(life.last, step);
}

void PlanValues::assign_arena(Plan& plan, const std::vector<OwnForm>& forms) const {
  const auto form_of = [&](uint32_t id) { return id < forms.size() ? forms[id] : OwnForm(); };
  const auto in_arena = [&](uint32_t id) {
    return roots_[id] == id && lives_[id].first >= 0 && ports_[id].place == Plan::Place::None;
  };
  const auto bytes_of = [&](uint32_t id) {
    const int64_t own = form_of(id).bytes;
    return own > 0 ? own : rows_[id].rows * rows_[id].cols * elem_bytes(elems_[id]);
  };
  // The value whose bytes hold those of `id`: what it is part of, or the first of those in whose place it comes.
  const auto owner_of = [&](uint32_t id, int64_t& offset) {
    const auto is_dense = [&](uint32_t value) { return in_arena(value) && form_of(value).bytes == 0; };
    for (Part part = parts_[id]; part.whole != kNoValue && is_dense(id) && is_dense(part.whole); part = parts_[id]) {
      id = part.whole;
      offset += part.offset;
    }
    if (const OwnForm form = form_of(id); form.within != kNoValue) {
      id = form.within;
      offset += form.offset;
    }
    for (uint32_t over = form_of(id).over; over != kNoValue; over = form_of(id).over) {
      const bool is_free =
          in_arena(over) && lives_[over].first < lives_[id].first && lives_[over].last == lives_[id].first;
      if (!is_free || bytes_of(over) != bytes_of(id)) break;
      id = over;
    }
    return id;
  };
  std::vector<Life> lives = lives_;
  std::vector<uint32_t> owners(rows_.size());
  std::vector<int64_t> offsets = offsets_;
  for (uint32_t id = 0; id < rows_.size(); ++id) {
    owners[id] = in_arena(id) ? owner_of(id, offsets[id]) : roots_[id];
    if (!in_arena(id)) continue;
    Life& life = lives[owners[id]];
    life = {std::min(life.first, lives_[id].first), std::max(life.last, lives_[id].last)};
  }
  for (uint32_t id = 0; id < rows_.size(); ++id) {
    if (form_of(id).with == kNoValue) continue;
    Life& life = lives[owners[root_of(form_of(id).with)]];
    life.last = std::max(life.last, lives_[root_of(id)].first);
  }
  std::vector<Lifetime> lifetimes;
  std::vector<uint32_t> placed;
  for (uint32_t id = 0; id < rows_.size(); ++id) {
    if (!in_arena(id) || owners[id] != id) continue;
    lifetimes.push_back({uint32_t(lives[id].first), uint32_t(lives[id].last), uint64_t(bytes_of(id))});
    placed.push_back(id);
  }
  const MemoryPlan memory = plan_memory(lifetimes);
  plan.arena_bytes = int64_t(memory.total_bytes);
  for (size_t i = 0; i < placed.size(); ++i)
    plan.storage[placed[i]] = {Plan::Place::Arena, 0, int64_t(memory.offsets[i])};
  for (uint32_t id = 0; id < rows_.size(); ++id) {
    const uint32_t root = roots_[id], owner = owners[root];
    plan.last_use.push_back(lives[owner].last);
    if (owner == id) continue;
    plan.storage[id] = plan.storage[owner];
    plan.storage[id].offset += offsets[id] + (root == id ? 0 : offsets[root]);
  }
}

}  // namespace tcim_lite
