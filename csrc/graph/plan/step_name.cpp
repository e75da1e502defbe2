#include "graph/plan/step_name.h"

#include "base/error.h"

namespace tcim_lite {
namespace {

StepName name(const LinearSpec& spec) {
  return {"Linear", concat(spec.outputs, " x ", spec.inputs, " ", name_of(spec.format))};
}
StepName name(const MoELinearSpec& spec) {
  return {spec.in_order ? "HeadLinear" : "MoELinear", name(spec.linear).form};
}
StepName name(const HeadsSpec&) { return {"Heads", ""}; }
StepName name(const AttentionSpec&) { return {"Attention", ""}; }
StepName name(const HeadsAttentionSpec&) { return {"Attention", ""}; }
StepName name(const RmsNormSpec&) { return {"RMSNorm", ""}; }
StepName name(const ElementwiseSpec&) { return {"Elementwise", ""}; }
StepName name(const SiluMulSpec&) { return {"SiluMul", ""}; }
StepName name(const GatherRowSpec&) { return {"BatchGather", ""}; }
StepName name(const CopySpec&) { return {"Copy", ""}; }
StepName name(const MoERouteSpec&) { return {"MoERoute", ""}; }
StepName name(const MoECombineSpec&) { return {"MoECombine", ""}; }
StepName name(const BroadcastSpec&) { return {"Broadcast", ""}; }
StepName name(const UnarySpec&) { return {"Unary", ""}; }
StepName name(const ReduceSpec&) { return {"Reduce", ""}; }
StepName name(const SoftmaxSpec&) { return {"Softmax", ""}; }
StepName name(const LayerNormSpec&) { return {"LayerNorm", ""}; }
StepName name(const ConvSpec& spec) {
  return {"Conv", concat(spec.groups * spec.outputs, " x ", spec.inputs(), " ", name_of(spec.format))};
}
StepName name(const MatMulSpec& spec) {
  if (spec.softmax_of.empty()) return {"MatMul", concat(spec.m, " x ", spec.k, " x ", spec.n)};
  return {"Attention", concat(spec.m, " x ", spec.softmax_of.front().k, " x ", spec.k)};
}
StepName name(const PoolSpec&) { return {"Pool", ""}; }
StepName name(const MoveSpec&) { return {"Move", ""}; }
StepName name(const GatherSpec&) { return {"Gather", ""}; }
StepName name(const ResampleSpec&) { return {"Resample", ""}; }
StepName name(const TopKSpec&) { return {"TopK", ""}; }
StepName name(const ResizerSpec&) { return {"Resizer", ""}; }
StepName name(const CastSpec&) { return {"Cast", ""}; }
StepName name(const CausalConvSpec&) { return {"CausalConv", ""}; }
StepName name(const DeltaRuleSpec&) { return {"DeltaRule", ""}; }
StepName name(const GateMulSpec&) { return {"GateMul", ""}; }

}  // namespace

StepName name_of(const StepSpec& spec) {
  return std::visit([](const auto& known) { return name(known); }, spec);
}

}  // namespace tcim_lite
