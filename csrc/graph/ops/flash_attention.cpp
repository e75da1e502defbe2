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
// Scores s become c * tanh(s / c), before masks and sinks; no c: they stay.
constexpr std::string_view kSoftcap = "softcap";
// With the value "given" the last operand is a score of each head that takes part in the softmax and has no value.
constexpr std::string_view kSinks = "sinks";
// With the value "given" each slot has one more operand: what is added to the scores of each token. Then a window is
// where the rows begin that the mask is about, and the lengths hide nothing. With "row" one row holds for every token.
// With "besides" a token sees what neither the mask nor the lengths and the window hide.
constexpr std::string_view kMask = "mask", kOfEach = "given", kOfAll = "row", kBesides = "besides";

// How many inputs each slot has.
size_t operands_per_slot(bool with_mask) { return with_mask ? 5 : 4; }

bool has_mask(const Op& op, std::string_view kind) {
  const AttributeValue* mask = op.find(kMask);
  return mask != nullptr && std::get<std::string>(*mask) == kind;
}

bool has_one_row(const Op& op) { return has_mask(op, kOfAll); }

void check_mask(const OpCheck& op, const Value& mask, const Value& q, int64_t context, DType dtype) {
  if (mask.kind != ValueKind::Input)
    op.refuse("mask '", mask.name, "' is ", describe(mask), ", expected a graph input");
  const bool flat = has_mask(op.op(), kBesides) && mask.shape.size() == 2;
  if (!flat) op.rank(mask, 4);
  const int64_t tokens = has_one_row(op.op()) ? 1 : q.shape[1], columns = mask.shape.back();
  const int64_t window = op.has_attribute(kWindow) ? op.whole_number(kWindow) : context;
  // Of a window, the rows that any of the tokens sees; the exporter rounds their number up.
  const int64_t least = window < context ? std::min(window + q.shape[1] - 1, context) : context;
  if (columns < least || columns > context)
    op.refuse("mask '", mask.name, "' is about ", columns, " cache rows, expected ", least,
              least < context ? concat(" to ", context) : "");
  op.expect(mask, dtype, flat ? Shape{tokens, columns} : Shape{1, 1, tokens, columns});
}

void check_flash_attention(const OpCheck& op) {
  const Value& q = op.first_input();
  const DType dtype = op.tensor(q);
  op.attributes({"scale", kSoftcap, kWindow, kSinks, kMask});
  const size_t with_sinks = op.has_attribute(kSinks) ? 1 : 0;
  if (with_sinks == 1) op.text_in(kSinks, {"given"});
  const bool with_mask = op.has_attribute(kMask);
  if (with_mask) op.text_in(kMask, {kOfEach, kOfAll, kBesides});
  if (op.has_attribute(kWindow) && op.whole_number(kWindow) < 1)
    op.refuse("attribute 'window' is ", op.whole_number(kWindow), ", expected 1 or more");
  op.positive_number("scale", 1);
  if (op.has_attribute(kSoftcap)) op.positive_number(kSoftcap, 1);
  const size_t per_slot = operands_per_slot(with_mask);
  const size_t num_slots = op.slots(q, 1 + with_sinks, per_slot), operands = 1 + per_slot * num_slots + with_sinks;
  op.arity(operands, operands, 1);
  op.rank(op.input(1), 4);
  const int64_t kv_heads = op.input(1).shape[1];
  if (q.shape[2] % kv_heads != 0)
    op.refuse("'", q.name, "' has ", q.shape[2], " heads, expected a multiple of the ", kv_heads, " of '",
              op.input(1).name, "'");
  for (size_t slot = 0; slot < num_slots; ++slot) {
    const size_t first = 1 + per_slot * slot;
    for (size_t i : {first, first + 1}) {
      const Value& cache = op.input(i);
      if (!op.is_updated_state(i) && cache.kind != ValueKind::Input)
        op.refuse("'", cache.name, "' is ", describe(cache), ", expected an updated state or an input");
      op.context_length(cache, cache.shape[2]);
      op.expect(cache, dtype, {1, kv_heads, cache.shape[2], q.shape[3]});
    }
    op.length(op.input(first + 2));
    op.length(op.input(first + 3));
    if (with_mask) check_mask(op, op.input(first + 4), q, op.input(first).shape[2], dtype);
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
  const double softcap = op.attribute(kSoftcap, 0.0);
  step.softcap = float(softcap);
  step.scale = float((scale > 0 ? scale : 1.0 / std::sqrt(double(step.head_dim))) / (softcap > 0 ? softcap : 1.0));
  const bool with_mask = op.find(kMask) != nullptr;
  step.by_lengths = !with_mask || has_mask(op, kBesides);
  const size_t per_slot = operands_per_slot(with_mask);
  for (size_t i = 1; i + per_slot <= op.inputs.size(); i += per_slot) {
    step.k.push_back(op.inputs[i]);
    step.v.push_back(op.inputs[i + 1]);
    step.lengths.push_back({op.inputs[i + 2], op.inputs[i + 3]});
    if (with_mask) {
      const uint32_t mask = op.inputs[i + 4];
      step.masks.push_back(plan.values.rows(mask).value);
      step.mask_cols = plan.value(mask).shape.back();
      step.mask_step = has_one_row(op) ? 0 : step.mask_cols;
    }
    plan.add_length_rule(step.lengths.back(), step.q.slot_rows, step.context);
  }
  plan.add_attention(std::move(step), op);
}

void cost_flash_attention(const Graph& graph, const Op& op, OpCost& cost) {
  const Shape& q = graph.values[op.inputs[0]].shape;
  const bool with_mask = op.find(kMask) != nullptr;
  const size_t per_slot = operands_per_slot(with_mask);
  cost.work = WorkKind::Attention;
  cost.tokens = q[1];
  cost.operations_per_pair = 4 * uint64_t(q[2] * q[3]);
  for (size_t i = 1; i + per_slot <= op.inputs.size(); i += per_slot) {
    CacheReads& slot = cost.caches.emplace_back();
    for (const size_t cache : {i, i + 1}) {
      if (cache > i && op.inputs[cache] == op.inputs[i]) continue;  // the same rows are keys and values
      const Value& value = graph.values[op.inputs[cache]];
      slot.row_bytes += uint64_t(num_elements(value.shape) / value.shape[2] * size_of(value.dtype));
    }
    slot.window = op.attribute(kWindow, int64_t{0});
    slot.context = graph.values[op.inputs[i]].shape[2];
    slot.valid = op.inputs[i + 2];
    slot.current = op.inputs[i + 3];
    if (with_mask) slot.mask = op.inputs[i + 4];
  }
}

}  // namespace

extern const OpDefinition FlashAttention = {
    "q [B, T, q_heads, D] T, then per slot: k, v [1, kv_heads, C, D] updated states or inputs, valid int32 [1], "
    "current int32 [1], with the attribute mask [1, 1, T, S] T; sinks [q_heads] float32, a weight, with the attribute "
    "{scale: float, default 1/sqrt(D); softcap: float, optional; window: int, default C; mask: \"given\", \"row\" or "
    "\"besides\", optional; sinks: \"given\", optional} -> [B, T, q_heads * D] T",
    "softmax(q k^T * scale) v; token t sees the `window` cache rows up to valid + t. With a softcap c, a score s is "
    "c * tanh(s / c) instead. The sink of a head is one more "
    "score of its softmax, without a value. A mask is an input that is added to the scores instead: column j is cache "
    "row max(valid - (window - 1), 0) + j, and -65504 or less hides it. S is C, or with a smaller window "
    "window + T - 1 to C. With mask: \"row\" it is [1, 1, 1, S], the same for every token; with \"besides\" the "
    "lengths and the window hide as without a mask, and it hides more; such a one may be [T, S]",
    Cut::Columns,
    check_flash_attention,
    plan_flash_attention,
    nullptr,
    1,
    cost_flash_attention};

}  // namespace tcim_lite::ops
