#include "base/error.h"
#include "graph/ops/op_check.h"
#include "graph/ops/op_definition.h"
#include "graph/plan/planner.h"

namespace tcim_lite::ops {
namespace {

constexpr std::string_view kGroups = "groups", kKeptGroups = "kept_groups";
constexpr std::string_view kSparseMixer = "sparse_mixer", kThreshold = "threshold";

void check_groups(const OpCheck& op, int64_t experts, int64_t chosen) {
  if (!op.has_attribute(kGroups) && !op.has_attribute(kKeptGroups)) return;
  const int64_t groups = op.whole_number(kGroups), kept = op.whole_number(kKeptGroups);
  const int64_t fewest = op.has_attribute("scores") ? 2 : 1;  // a group counts its two best
  if (groups < 1 || experts % groups != 0 || experts / groups < fewest)
    op.refuse("attribute 'groups' is ", groups, ", expected equal groups of ", fewest, " or more of ", experts,
              " experts");
  if (kept < 1 || kept > groups || kept * (experts / groups) < chosen)
    op.refuse("attribute 'kept_groups' is ", kept, ", expected 1 to the ", groups, " groups, and ", chosen,
              " experts in them");
}

void check_moe_route(const OpCheck& op) {
  op.arity(1, 2, 2);
  op.attributes({"k", "order", "scores", "normalise", kGroups, kKeptGroups, kThreshold});
  const Value& logits = op.input(0);
  const DType dtype = op.tensor(logits);
  op.rank(logits, 3);
  const int64_t chosen = op.whole_number("k"), experts = logits.shape[2];
  if (chosen < 1 || chosen > experts)
    op.refuse("attribute 'k' is ", chosen, ", expected 1 to the ", experts, " experts of '", logits.name, "'");
  check_groups(op, experts, chosen);
  if (op.has_attribute("scores")) {
    op.text_in("scores", {"sigmoid", "softmax"});
    if (op.has_attribute("order")) op.refuse("has both attributes 'order' and 'scores', expected one of them");
    if (op.num_inputs() == 2) op.constant(op.input(1), DType::Float32, {experts});
  } else {
    op.text_in("order", {"softmax_topk", "topk_softmax", kSparseMixer});
    if (op.num_inputs() == 2) op.refuse("'", op.input(1).name, "' is a bias, which goes with the attribute 'scores'");
  }
  if (op.has_attribute("normalise")) {
    const int64_t normalise = op.whole_number("normalise");
    if (normalise != 0 && normalise != 1) op.refuse("attribute 'normalise' is ", normalise, ", expected 0 or 1");
  }
  const AttributeValue* order = op.op().find("order");
  const bool mixes = order != nullptr && std::get<std::string>(*order) == kSparseMixer;
  if (mixes != op.has_attribute(kThreshold)) op.refuse("attribute 'threshold' goes with the order 'sparse_mixer'");
  if (mixes) op.positive_number(kThreshold, 0);
  if (mixes && op.has_attribute("normalise") && op.whole_number("normalise") != 0)
    op.refuse("attribute 'normalise' is 1, which does not go with the order 'sparse_mixer'");
  op.expect(op.output(0), DType::Int32, OpCheck::with_last(logits.shape, chosen));
  op.expect(op.output(1), dtype, OpCheck::with_last(logits.shape, chosen));
}

void plan_moe_route(PlanBuilder& plan, const Op& op) {
  MoERouteSpec step;
  step.elem = plan.values.elem(op.inputs[0]);
  step.logits = plan.values.rows(op.inputs[0]);
  step.experts = step.logits.cols;
  step.chosen = op.attribute("k", int64_t{0});
  if (const AttributeValue* scores = op.find("scores")) {
    step.sigmoid = std::get<std::string>(*scores) == "sigmoid";
    step.softmax_scores = !step.sigmoid;
  }
  step.threshold = float(op.attribute(kThreshold, 0.0));
  step.softmax_first = !step.scored() && std::get<std::string>(*op.find("order")) == "softmax_topk";
  if (op.inputs.size() > 1) step.bias_id = op.inputs[1];
  step.normalise = op.attribute("normalise", int64_t{0}) != 0;
  step.groups = op.attribute(kGroups, int64_t{1});
  step.kept_groups = op.attribute(kKeptGroups, step.groups);
  if (step.chosen > MoERouteSpec::kMostChosen || step.experts > MoERouteSpec::kMostExperts)
    fail(ErrorCode::Unsupported, "MoERoute: ", step.chosen, " of ", step.experts, " experts; backends take at most ",
         MoERouteSpec::kMostChosen, " of ", MoERouteSpec::kMostExperts);
  plan.values.reads(op.inputs[0], plan.next_step());
  step.ids = plan.result(op.outputs[0], op.inputs[0]);
  step.weights = plan.result(op.outputs[1], op.inputs[0]);
  plan.append(std::move(step));
}

}  // namespace

extern const OpDefinition MoERoute = {
    "logits [B, T, E] T, bias [E] float32 (optional, with scores) {k: int, order: \"softmax_topk\", \"topk_softmax\" "
    "or \"sparse_mixer\" with threshold: float, or instead scores: \"sigmoid\" or \"softmax\"; normalise: 0 or 1, "
    "default 0; groups, kept_groups: int, both or neither} -> ids [B, T, k] int32, weights [B, T, k] T",
    "the k largest logits, the largest first, of equal ones the lower id, and what each counts: its softmax over all "
    "experts, divided by the sum of the k where normalised, or its softmax over the k. With sparse_mixer, the expert "
    "of rank r and logit m counts its softmax over those that are not of a lower rank and have a logit l with (m - "
    "l) / max(|l|, m) at most the threshold. With scores, the k largest of score + bias, and each counts its score, "
    "the sigmoid of its logit or its softmax over all, divided by the sum of the k where normalised. With groups, "
    "equal runs of experts, only those of the `kept_groups` best are chosen: of a group counts its largest logit, or "
    "with scores the sum of its two largest score + bias; of equal groups the lower one",
    Cut::None, check_moe_route, plan_moe_route};

}  // namespace tcim_lite::ops
