#include <algorithm>
#include <cmath>
#include <string_view>

#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

// How many rows a token sees, the last of them its own; all without it.
constexpr std::string_view kWindow = "window";
// With the value "given" the last operand is a score of each head that takes part in the softmax and has no value.
constexpr std::string_view kSinks = "sinks";

void check_flash_attention(const OpCheck& op) {
  const Value& q = op.first_input();
  const DType dtype = op.tensor(q);
  op.attributes({"scale", kWindow, kSinks});
  const size_t with_sinks = op.has_attribute(kSinks) ? 1 : 0;
  if (with_sinks == 1) op.text_in(kSinks, {"given"});
  if (op.has_attribute(kWindow) && op.whole_number(kWindow) < 1)
    op.refuse("attribute 'window' is ", op.whole_number(kWindow), ", expected 1 or more");
  op.positive_number("scale", 1);
  const size_t num_slots = op.slots(q, 1 + with_sinks, 4), operands = 1 + 4 * num_slots + with_sinks;
  op.arity(operands, operands, 1);
  op.rank(op.input(1), 4);
  const int64_t kv_heads = op.input(1).shape[1];
  if (q.shape[2] % kv_heads != 0)
    op.refuse("'", q.name, "' has ", q.shape[2], " heads, expected a multiple of the ", kv_heads, " of '",
              op.input(1).name, "'");
  for (size_t slot = 0; slot < num_slots; ++slot) {
    for (size_t i : {1 + 4 * slot, 2 + 4 * slot}) {
      const Value& cache = op.input(i);
      if (!op.is_updated_state(i)) op.refuse("'", cache.name, "' is ", describe(cache), ", expected an updated state");
      op.context_length(cache, cache.shape[2]);
      op.expect(cache, dtype, {1, kv_heads, cache.shape[2], q.shape[3]});
    }
    op.length(op.input(3 + 4 * slot));
    op.length(op.input(4 + 4 * slot));
  }
  if (with_sinks == 1) op.constant(op.input(operands - 1), DType::Float32, {q.shape[2]});
  op.expect(op.output(0), dtype, {q.shape[0], q.shape[1], q.shape[2] * q.shape[3]});
}

void plan_flash_attention(PlanBuilder& plan, const Op& op) {
  AttentionSpec step;
  const Shape &q = plan.value(op.inputs[0]).shape, &cache = plan.value(op.inputs[1]).shape;
  step.elem = plan.values.elem(op.inputs[0]);
  step.cache_elem = plan.values.elem(op.inputs[1]);
  step.q = plan.values.rows(op.inputs[0]);
  step.q_heads = q[2];
  step.head_dim = q[3];
  step.kv_heads = cache[1];
  step.context = cache[2];
  if (op.find(kSinks) != nullptr) step.sinks_id = op.inputs.back();
  step.window = std::min(op.attribute(kWindow, step.context), step.context);
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
    plan.add_length_rule(step.lengths.back(), step.q.slot_rows, step.context);
  }
  plan.add_attention(std::move(step), op);
}

}  // namespace

extern const OpDefinition FlashAttention = {
    "q [B, T, q_heads, D] T, then per slot: k, v [1, kv_heads, C, D] updated states, valid int32 [1], "
    "current int32 [1]; sinks [q_heads] float32, a weight, with the attribute {scale: float, default 1/sqrt(D); "
    "window: "
    "int, default C; sinks: \"given\", optional} -> [B, T, q_heads * D] T",
    "softmax(q k^T * scale) v; token t sees the `window` cache rows up to valid + t. The sink of a head is one more "
    "score of its softmax, without a value",
    Cut::Columns,
    check_flash_attention,
    plan_flash_attention,
    nullptr,
    1};

}  // namespace tcim_lite::ops
