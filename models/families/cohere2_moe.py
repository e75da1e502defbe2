"""Command models with experts: as Command R7B, with experts beside attention in most layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Block, Mlp, Moe
from ..common.config_keys import Key, Only, count, size
from ..common.config_rules import Windows, dense_layers, sliding_layers, windows_in
from ..common.errors import CompileError
from ..family import plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from . import cohere
from .shared.dense import all_heads, expert_tensors

_MLP = "model.layers.{layer}.mlp"
_EXPERT, _SHARED = f"{_MLP}.experts.{{expert}}", f"{_MLP}.shared_experts"
_CHOICES = ("softmax", "sigmoid")
_SHARES = {"sum": 1.0, "average": 0.5}  # of the chosen experts and of the shared one in the sum


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    dense = flags["mlp_layer_types"][layer] == "dense"
    rotated = config.windows[layer] is not None or (dense and flags["prefix_dense_sliding_window_pattern"] == 1)
    attention, _ = cohere.layer_of(config, layer, rotated=rotated)
    if dense:
        return attention, Mlp(beside=True, in_norm=False)
    share = _SHARES[flags["shared_expert_combination_strategy"]] if flags["num_shared_experts"] else 1.0
    sigmoids = flags["expert_selection_fn"] == "sigmoid"
    return attention, Moe(
        order="sigmoid" if sigmoids else "topk_softmax",
        choice_bias=False,
        normalise=sigmoids and flags["norm_topk_prob"],
        in_norm=False,
        beside=True,
        shared_gate=False,
        scale=share,
        shared_scale=share,
    )


def _windows(raw: Mapping[str, Any], layers: int) -> Windows:
    """In layers that `layer_types` names, or in all but some by a pattern, which begins again behind dense ones."""
    window, types = raw.get("sliding_window", 4096), raw.get("layer_types")
    if types is not None:
        return windows_in(sliding_layers(types, layers), window)
    dense = count("first_k_dense_replace", raw.get("first_k_dense_replace", 0))
    first, step = (
        size(key, raw.get(key, usual))
        for key, usual in (("prefix_dense_sliding_window_pattern", 1), ("sliding_window_pattern", 4))
    )
    slides = [(layer + 1) % first != 0 for layer in range(dense)]
    return windows_in([*slides, *((layer + 1) % step != 0 for layer in range(layers - dense))], window)


def _mlp_types(values: Mapping[str, Any]) -> tuple[str, ...]:
    layers, dense = values["num_hidden_layers"], values["first_k_dense_replace"]
    return tuple("dense" if layer < dense else "sparse" for layer in range(layers))


def _inner(values: Mapping[str, Any]) -> int:
    return int(values["intermediate_size"])


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    dense_layers(values["mlp_layer_types"], values["num_hidden_layers"])
    for key, known in (("expert_selection_fn", _CHOICES), ("shared_expert_combination_strategy", _SHARES)):
        if values[key] not in known:
            raise CompileError(
                f"config.json: {key}={values[key]!r:.40} is not supported, expected {' or '.join(known)}"
            )
    epsilon = values["rms_norm_eps"]
    centred, epsilon = epsilon is None, values["layer_norm_eps"] if epsilon is None else epsilon
    return {
        "intermediate_size": values["prefix_dense_intermediate_size"],
        "centred": centred,
        "rms_norm_eps": epsilon,
        "logit_scale": values["logit_scale"],
    }


def _experts(values: Mapping[str, Any]) -> Experts:
    inner = values["intermediate_size"]
    shared = inner * values["num_shared_experts"] or None
    return Experts(count=values["num_experts"], chosen=values["num_experts_per_tok"], inner=inner, shared=shared)


FAMILY = replace(
    cohere.FAMILY,
    model_type="cohere2_moe",
    architecture="Cohere2MoeForCausalLM",
    title="Command MoE",
    models="Command models with experts",
    has="as Command R7B, with RMS norms if `rms_norm_eps` is there; dense layers by `mlp_layer_types` or "
    "`first_k_dense_replace`, with `prefix_dense_intermediate_size` and windows by "
    "`prefix_dense_sliding_window_pattern`; in the others `num_experts_per_tok` of `num_experts` MLPs for each token "
    "(`expert_selection_fn`, `norm_topk_prob`), and `num_shared_experts` shared ones "
    "(`shared_expert_combination_strategy`)",
    keys=(
        *cohere.FAMILY.keys,
        Key("head_dim", absent=128),
        Key("num_key_value_heads", absent=all_heads, null=all_heads),
        Key("layer_norm_eps", "number", absent=1e-5),
        Key("rms_norm_eps", "optional"),
        Key("num_experts_per_tok", absent=2),
        Key("num_experts", absent=8),
        Key("num_shared_experts", "count", absent=0),
        Key("shared_expert_combination_strategy", "choice", absent="average"),
        Key("expert_selection_fn", "choice", absent="softmax"),
        Key("norm_topk_prob", "flag", absent=True),
        Key("first_k_dense_replace", "count", absent=0),
        Key("mlp_layer_types", "names", absent=_mlp_types, null=_mlp_types),
        Key("prefix_dense_sliding_window_pattern", absent=1),
        Key("prefix_dense_intermediate_size", absent=_inner, null=_inner),
        Only("use_qk_norm", False),
    ),
    spelled={},
    window=_windows,
    layer=_layer,
    tensors={
        **cohere.FAMILY.tensors,
        roles.ROUTER: plain(f"{_MLP}.gate.weight"),
        **expert_tensors(_EXPERT, _SHARED),
    },
    experts=_experts,
    folded=_folded,
    gguf=None,
    packed_experts="rows",
    rope_theta=10000.0,
    tiny={
        **{key: value for key, value in cohere.FAMILY.tiny.items() if key != "use_qk_norm"},
        "intermediate_size": 128,
        "prefix_dense_intermediate_size": 320,
        "num_hidden_layers": 3,
        "mlp_layer_types": ["dense", "sparse", "sparse"],
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "sliding_window": 10,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "num_shared_experts": 2,
        "expert_selection_fn": "sigmoid",
        "rope_theta": 50000.0,
    },
)
