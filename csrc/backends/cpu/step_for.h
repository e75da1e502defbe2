// The class that runs each kind of step of a plan: PlainStep, or the one that is named here.
#pragma once

#include <type_traits>

#include "backends/cpu/ops/attention.h"
#include "backends/cpu/ops/conv.h"
#include "backends/cpu/ops/dense_steps.h"
#include "backends/cpu/ops/heads.h"
#include "backends/cpu/ops/linear.h"
#include "backends/cpu/ops/linear_attention.h"
#include "backends/cpu/ops/mat_mul.h"
#include "backends/cpu/ops/moe.h"
#include "backends/cpu/ops/pool.h"
#include "backends/cpu/ops/row_steps.h"

namespace tcim_lite::cpu {

template <typename Spec>
struct StepFor : std::type_identity<PlainStep<Spec>> {};
template <>
struct StepFor<LinearSpec> : std::type_identity<LinearStep> {};
template <>
struct StepFor<HeadsSpec> : std::type_identity<HeadsStep> {};
template <>
struct StepFor<AttentionSpec> : std::type_identity<AttentionStep> {};
template <>
struct StepFor<HeadsAttentionSpec> : std::type_identity<HeadsAttentionStep> {};
template <>
struct StepFor<RmsNormSpec> : std::type_identity<RmsNormStep> {};
template <>
struct StepFor<MoERouteSpec> : std::type_identity<MoERouteStep> {};
template <>
struct StepFor<MoELinearSpec> : std::type_identity<MoELinearStep> {};
template <>
struct StepFor<MoECombineSpec> : std::type_identity<MoECombineStep> {};
template <>
struct StepFor<BroadcastSpec> : std::type_identity<BroadcastStep> {};
template <>
struct StepFor<SoftmaxSpec> : std::type_identity<SoftmaxStep> {};
template <>
struct StepFor<LayerNormSpec> : std::type_identity<LayerNormStep> {};
template <>
struct StepFor<ConvSpec> : std::type_identity<ConvStep> {};
template <>
struct StepFor<MatMulSpec> : std::type_identity<MatMulStep> {};
template <>
struct StepFor<PoolSpec> : std::type_identity<PoolStep> {};
template <>
struct StepFor<MoveSpec> : std::type_identity<MoveStep> {};
template <>
struct StepFor<GatherSpec> : std::type_identity<GatherStep> {};
template <>
struct StepFor<ResampleSpec> : std::type_identity<ResampleStep> {};
template <>
struct StepFor<ResizerSpec> : std::type_identity<ResizerStep> {};
template <>
struct StepFor<TopKSpec> : std::type_identity<TopKStep> {};
template <>
struct StepFor<CausalConvSpec> : std::type_identity<CausalConvStep> {};
template <>
struct StepFor<DeltaRuleSpec> : std::type_identity<DeltaRuleStep> {};

template <typename Spec>
using StepOf = typename StepFor<std::remove_cvref_t<Spec>>::type;

}  // namespace tcim_lite::cpu
