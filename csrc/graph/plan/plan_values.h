// What the plan builder knows about values: their form as rows, what they are views of, who uses them, and how long
// they live. Shared by the parts of the builder.
#pragma once

#include <vector>

#include "graph/plan/plan.h"

namespace tcim_lite {

class PlanValues {
 public:
  PlanValues(const Graph& graph, bool float_math);

  Elem elem(uint32_t id) const { return elems_[alias_[id]]; }
  Rows rows(uint32_t id) const { return rows_[alias_[id]]; }
  bool produced(uint32_t id) const { return lives_[root_of(id)].first >= 0; }

  // The one op that reads the value, if there is exactly one and the value is not a graph output; else null.
  const Op* sole_consumer(uint32_t id) const { return consumers_[id] == 1 ? last_consumer_[id] : nullptr; }

  // out is a view of x: same storage, `offset` elements in, `cols` wide.
  void make_view(uint32_t out, uint32_t x, int64_t offset, int64_t cols);

  // A value of the plan's own with the form of `like`.
  uint32_t add_copy(const Rows& like, Elem elem);
  // Rows of y that a row of x does not reach are not computed: y is limited where x is.
  void follows(uint32_t y, uint32_t x) { rows_[y].limited = rows(x).limited; }
  // Every later use of `id` means `copy`.
  void redirect(uint32_t id, uint32_t copy) { alias_[id] = copy; }
  // The bytes of `id` are to be part of those of `whole`, `offset` elements in, which a later step writes around them.
  // Holds where both lie dense in the arena and `id` is part of no other value: what copies `id` there has to look.
  void place_within(uint32_t id, uint32_t whole, int64_t offset);
  // The value's bytes are those of a port, not of the arena.
  void place(uint32_t id, Plan::Place place, uint32_t port);

  void reads(uint32_t id, int64_t step);
  void writes(uint32_t id, int64_t step);
  int64_t first_step(uint32_t id) const { return lives_[root_of(id)].first; }

  // Whether both are the whole of one storage, such as a cache and what KVcache makes of it.
  bool is_same(uint32_t a, uint32_t b) const {
    return root_of(a) == root_of(b) && offsets_[alias_[a]] == offsets_[alias_[b]];
  }
  bool is_view(uint32_t id) const { return roots_[id] != id; }
  bool is_state(uint32_t id) const {
    const uint32_t root = root_of(id);
    return root < graph_.values.size() && graph_.values[root].kind == ValueKind::State;
  }

  void assign_ports(Plan& plan) const { plan.storage = ports_; }
  // Plans the arena and resolves every value. forms: as OwnForms.
  void assign_arena(Plan& plan, const std::vector<OwnForm>& forms) const;

 private:
  struct Life {
    int64_t first = -1, last = -1;
  };

  struct Part {
    uint32_t whole = kNoValue;
    int64_t offset = 0;  // bytes
  };

  uint32_t root_of(uint32_t id) const { return roots_[alias_[id]]; }

  const Graph& graph_;
  std::vector<Elem> elems_;
  std::vector<Rows> rows_;
  std::vector<uint32_t> roots_;   // value id whose storage holds this one
  std::vector<int64_t> offsets_;  // bytes from the root's start
  std::vector<uint32_t> alias_;
  std::vector<Part> parts_;           // of what roots are parts
  std::vector<Life> lives_;           // of roots
  std::vector<Plan::Storage> ports_;  // of roots that live in ports
  std::vector<int> consumers_;
  std::vector<const Op*> last_consumer_;
};

}  // namespace tcim_lite
