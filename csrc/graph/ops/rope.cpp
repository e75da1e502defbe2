#include <string_view>

#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

// Where each token is, is an operand; otherwise tokens follow the valid length.
constexpr std::string_view kPositions = "positions";
// The graph makes a row of cos and of sin for each token; otherwise they are tables by position.
constexpr std::string_view kTables = "tables";
// Elements of a head that are rotated, the first ones; otherwise all.
constexpr std::string_view kRotaryDim = "rotary_dim";

int64_t check_rotary_dim(const OpCheck& op, int64_t head_dim) {
  const int64_t dim = op.has_attribute(kRotaryDim) ? op.whole_number(kRotaryDim) : head_dim;
  if (dim < 2 || dim > head_dim || dim % 2 != 0)
    op.refuse("rotates ", dim, " elements of heads of ", head_dim, ", expected an even number of them");
  return dim;
}

void check_tables(const OpCheck& op, DType dtype, int64_t width) {
  op.arity(4, SIZE_MAX, 1);
  const bool given = op.has_attribute(kPositions);
  if (given) op.text_in(kPositions, {"given"});
  const Value& x = op.input(0);
  const size_t num_slots = op.slots(x, 3, 1);
  op.rank(op.input(1), 2);
  op.context_length(op.input(1), op.input(1).shape[0]);
  for (size_t i : {1, 2}) op.constant(op.input(i), dtype, {op.input(1).shape[0], width});
  for (size_t slot = 0; slot < num_slots; ++slot) {
    const Value& where = op.input(3 + slot);
    given ? op.positions(where, x.shape[1]) : op.length(where);
  }
}

void check_computed_tables(const OpCheck& op, DType dtype, int64_t width) {
  op.text_in(kTables, {"computed"});
  op.arity(3, 3, 1);
  if (op.has_attribute(kPositions)) op.refuse("has rows of cos and sin for its tokens and positions as well");
  const Value& x = op.input(0);
  for (size_t i : {1, 2}) {
    op.tensor(op.input(i));
    op.expect(op.input(i), dtype, {x.shape[0], x.shape[1], width});
  }
}

void check_rope(const OpCheck& op) {
  op.attributes({kPositions, kTables, kRotaryDim});
  const Value& x = op.first_input();
  const DType dtype = op.tensor(x);
  op.rank(x, 4);
  const int64_t width = check_rotary_dim(op, x.shape[3]) / 2;
  op.has_attribute(kTables) ? check_computed_tables(op, dtype, width) : check_tables(op, dtype, width);
  op.expect(op.output(0), dtype, x.shape);
}

void plan_rope(PlanBuilder& plan, const Op& op) { plan.add_heads(op); }

}  // namespace

extern const OpDefinition Rope = {
    "x [B, T, heads, D] T, cos [C, R/2] T, sin [C, R/2] T, valid_0 .. valid_{B-1} int32 [1] or positions_0 .. "
    "positions_{B-1} int32 [1, T] {positions: \"given\", optional; rotary_dim: R, optional}; or x, cos and sin [B, T, "
    "R/2] T, no weights {tables: \"computed\"; rotary_dim} -> like x",
    "rotates the halves of the first R elements of each head, all D unless said otherwise, by the position, valid + "
    "token or as given; one outside the tables is taken for their nearest row. With computed tables each token has "
    "rows of its own",
    Cut::Heads,
    check_rope,
    plan_rope,
    nullptr,
    kNoOperand,
    nullptr,
    true};

}  // namespace tcim_lite::ops
