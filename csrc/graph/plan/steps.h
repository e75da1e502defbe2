// The steps of a plan: what a backend has to compute, with its fusions, and nothing about how. Ids are those of the
// plan's values; kNoValue where an operand does not exist.
#pragma once

#include <variant>

#include "graph/plan/dense_steps.h"
#include "graph/plan/linear_attention_steps.h"
#include "graph/plan/row_steps.h"

namespace tcim_lite {

using StepSpec =
    std::variant<LinearSpec, HeadsSpec, AttentionSpec, HeadsAttentionSpec, RmsNormSpec, ElementwiseSpec, SiluMulSpec,
                 GatherRowSpec, CopySpec, MoERouteSpec, MoELinearSpec, MoECombineSpec, BroadcastSpec, UnarySpec,
                 ReduceSpec, SoftmaxSpec, LayerNormSpec, ConvSpec, MatMulSpec, PoolSpec, MoveSpec, GatherSpec,
                 ResampleSpec, TopKSpec, ResizerSpec, CastSpec, CausalConvSpec, DeltaRuleSpec, GateMulSpec>;

}  // namespace tcim_lite
