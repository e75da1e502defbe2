#include <string_view>

#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

// Where each token is, is an operand; otherwise tokens follow the valid length.
constexpr std::string_view kPositions = "positions";

void check_rope(const OpCheck& op) {
  op.arity(4, SIZE_MAX, 1);
  op.attributes({kPositions});
  const bool given = op.has_attribute(kPositions);
  if (given) op.text_in(kPositions, {"given"});
  const Value& x = op.input(0);
  const DType dtype = op.tensor(x);
  const size_t num_slots = op.slots(x, 3, 1);
  if (x.shape[3] % 2 != 0) op.refuse("'", x.name, "' is ", describe(x), ", expected an even last extent");
  op.rank(op.input(1), 2);
  op.context_length(op.input(1), op.input(1).shape[0]);
  for (size_t i : {1, 2}) op.constant(op.input(i), dtype, {op.input(1).shape[0], x.shape[3] / 2});
  for (size_t slot = 0; slot < num_slots; ++slot) {
    const Value& where = op.input(3 + slot);
    given ? op.positions(where, x.shape[1]) : op.length(where);
  }
  op.expect(op.output(0), dtype, x.shape);
}

void plan_rope(PlanBuilder& plan, const Op& op) { plan.add_heads(op); }

}  // namespace

extern const OpDefinition Rope = {
    "x [B, T, heads, D] T, cos [C, D/2] T, sin [C, D/2] T, valid_0 .. valid_{B-1} int32 [1] or positions_0 .. "
    "positions_{B-1} int32 [1, T] {positions: \"given\", optional} -> like x",
    "rotates the halves of each head by the position, valid + token or as given; one outside the tables is taken for "
    "their nearest row",
    Cut::Heads,
    check_rope,
    plan_rope,
    nullptr,
    kNoOperand,
    nullptr,
    true};

}  // namespace tcim_lite::ops
