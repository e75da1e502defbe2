"""Experts as DeepSeek's files have them: chosen by sigmoids and a bias, in groups or not, beside shared ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...blocks import Mlp, Moe
from ...common.config_keys import Key, Only
from ...common.errors import CompileError
from ...family import Tensors, plain
from ...model_config import Experts, ModelConfig
from ...weights import roles
from .dense import expert_tensors

_MLP = "model.layers.{layer}.mlp"
_EXPERT, _SHARED = f"{_MLP}.experts.{{expert}}", f"{_MLP}.shared_experts"


def expert_keys(
    count: int = 128, chosen: int = 8, inner: int = 1408, scale: float = 1.0, groups: tuple[int, int] = (1, 1)
) -> tuple[Key | Only, ...]:
    """Those of experts that are chosen by sigmoids, with these defaults."""
    return (
        Key("n_routed_experts", absent=count, also="num_local_experts"),
        Key("n_shared_experts", absent=1),
        Key("num_experts_per_tok", absent=chosen),
        Key("moe_intermediate_size", absent=inner),
        Key("routed_scaling_factor", "number", absent=scale),
        Key("norm_topk_prob", "flag", absent=True),
        Key("n_group", absent=groups[0]),
        Key("topk_group", absent=groups[1]),
        Only("scoring_func", "sigmoid"),
        Only("topk_method", "noaux_tc"),
        Only("moe_layer_freq", 1),
    )


def mlp_or_experts(config: ModelConfig, dense: bool) -> Mlp | Moe:
    """What a layer has behind attention."""
    flags = config.flags
    if dense:
        return Mlp()
    normalise, scale = flags["norm_topk_prob"], flags["routed_scaling_factor"]
    return Moe(order="sigmoid", normalise=normalise, scale=scale, shared_gate=False, groups=groups_of(flags))


def groups_of(flags: Mapping[str, Any]) -> tuple[int, int] | None:
    """Returns how many groups of experts there are and how many of them a token takes; None where it takes all."""
    groups, kept = flags["n_group"], flags["topk_group"]
    return None if groups == kept else (groups, kept)


def experts_of(values: Mapping[str, Any]) -> Experts:
    """Sizes of the experts; the shared ones are one that is as large as all of them."""
    count, chosen, inner = values["n_routed_experts"], values["num_experts_per_tok"], values["moe_intermediate_size"]
    groups, kept = values["n_group"], values["topk_group"]
    fewest = 1 if "topk_method" in values else 2  # a group of sigmoids counts its two best
    if count % groups or kept > groups or count // groups < fewest or kept * (count // groups) < chosen:
        raise CompileError(
            f"config.json: n_group={groups} and topk_group={kept} do not fit {count} experts of which "
            f"{chosen} are chosen; expected equal groups of {fewest} or more, and enough experts in topk_group of them"
        )
    return Experts(count=count, chosen=chosen, inner=inner, shared=inner * values["n_shared_experts"])


EXPERT_TENSORS: Mapping[roles.Role, Tensors] = {
    roles.ROUTER: plain(f"{_MLP}.gate.weight"),
    roles.ROUTER_CHOICE: plain(f"{_MLP}.gate.e_score_correction_bias"),
    **expert_tensors(_EXPERT, _SHARED),
}

EXPERT_TINY: Mapping[str, Any] = {
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 1,
}

GROUPS = ("expert_group_count", "expert_group_used_count")


def groups_of_gguf(get: Callable[[str], Any]) -> dict[str, Any]:
    """Reads the groups of experts, of which early files say nothing."""
    return {"n_group": get(GROUPS[0]) or 1, "topk_group": get(GROUPS[1]) or 1}


GGUF_KEYS: Mapping[str, str] = {
    "expert_shared_count": "n_shared_experts",
    "leading_dense_block_count": "first_k_dense_replace",
    "expert_weights_scale": "routed_scaling_factor",
}
