"""Kimi Linear: delta attention with decays of keys, latent attention without rotation, experts as DeepSeek-V3's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Block, KeyDeltaNet
from ..common.config_keys import Key, Only, layers, size
from ..common.config_rules import dense_layers
from ..common.errors import CompileError
from ..family import Family, Tensors, plain
from ..model_config import ModelConfig
from ..weights import roles
from .shared import latent
from .shared.deepseek_experts import EXPERT_TINY, expert_keys, experts_of, mlp_or_experts
from .shared.dense import expert_tensors
from .shared.state_space import layer_kinds, with_states

_LAYER = "model.layers.{layer}"
_ATTENTION, _EXPERTS = f"{_LAYER}.self_attn", f"{_LAYER}.block_sparse_moe"
_KINDS = ("full_attention", "linear_attention")


def _kinds(config: ModelConfig) -> tuple[str, ...]:
    """Kinds of layers: as `layer_types` or `linear_attn_config` says, or every fourth has attention."""
    count, said = config.num_layers, config.flags["linear_attn_config"]
    if types := config.flags["layer_types"]:
        return layer_kinds("layer_types", types, count, _KINDS)
    if not {"full_attn_layers", "kda_layers"} <= said.keys():
        usual = [_KINDS[0] if layer and layer % 4 == 0 else _KINDS[1] for layer in range(count)]
        return layer_kinds("layer_types", usual, count, _KINDS)
    # Numbers in such files begin with 1.
    full, linear = (layers(f"linear_attn_config: {key}", said[key]) for key in ("full_attn_layers", "kda_layers"))
    if sorted([*full, *linear]) != list(range(1, count + 1)):
        raise CompileError(
            f"config.json: full_attn_layers={full!r:.80} and kda_layers={linear!r:.80} of linear_attn_config must name "
            f"each of {count} layers once, the first as 1"
        )
    return layer_kinds("full_attn_layers", [_KINDS[n not in full] for n in range(1, count + 1)], count, _KINDS)


def _delta(config: ModelConfig) -> KeyDeltaNet:
    """The block of a layer without attention; `linear_attn_config` counts where a file has both."""
    said, names = config.flags["linear_attn_config"], ("num_heads", "head_dim", "short_conv_kernel_size")
    usual = (config.flags[key] for key in ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"))
    heads, keys, taps = (
        size(f"linear_attn_config: {name}", said.get(name, value)) for name, value in zip(names, usual, strict=True)
    )
    return KeyDeltaNet(heads=heads, keys=keys, taps=taps)


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    mlp = mlp_or_experts(config, config.flags["mlp_layer_types"][layer] == "dense")
    if _kinds(config)[layer] == "linear_attention":
        return _delta(config), mlp
    attention = latent.attention(config, in_pairs=False)
    size_of_head = config.flags["qk_nope_head_dim"] + config.flags["qk_rope_head_dim"]
    return replace(attention, rotated=False, scale=size_of_head**-0.5), mlp


def _dense_first(values: Mapping[str, Any]) -> tuple[str, ...]:
    count, dense = values["num_hidden_layers"], values["first_k_dense_replace"]
    return tuple("dense" if layer < dense else "sparse" for layer in range(count))


def _folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    dense_layers(values["mlp_layer_types"], values["num_hidden_layers"])
    return latent.sizes(values)


FAMILY = Family(
    model_type="kimi_linear",
    architecture="KimiLinearForCausalLM",
    title="Kimi Linear",
    models="Kimi-Linear-48B-A3B",
    has="[linear attention](compile.md#linear-attention) with a decay for each element of a key in layers of "
    "`linear_attn_config` or `layer_types`, in the others [latent attention](compile.md#latent-attention) without "
    "rotation; experts as in DeepSeek-V3, dense layers by `mlp_layer_types` or `first_k_dense_replace`",
    keys=(
        *latent.keys(),
        Key("q_lora_rank", "count", absent=0, null=0),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=1048576),
        *expert_keys(256, 8, 1024, 2.446),
        Key("first_k_dense_replace", "count", absent=1),
        Key("mlp_layer_types", "names", absent=_dense_first, null=_dense_first),
        Key("layer_types", "names", absent=(), null=()),
        Key("linear_attn_config", "object", absent={}, null={}),
        Key("linear_num_heads", absent=32),
        Key("linear_head_dim", absent=128),
        Key("linear_conv_kernel_dim", absent=4),
        Only("mla_use_nope", True),
    ),
    spelled={
        "n_routed_experts": "num_experts",
        "n_shared_experts": "num_shared_experts",
        "num_experts_per_tok": "num_experts_per_token",
        "norm_topk_prob": "moe_renormalize",
        "n_group": "num_expert_group",
        "max_position_embeddings": "model_max_length",
    },
    layer=_layer,
    tensors={
        **latent.TENSORS,
        roles.ROUTER: plain(f"{_EXPERTS}.gate.weight"),
        roles.ROUTER_CHOICE: plain(f"{_EXPERTS}.gate.e_score_correction_bias"),
        **expert_tensors(f"{_EXPERTS}.experts.{{expert}}", f"{_EXPERTS}.shared_experts"),
        roles.EXPERT_GATE_UP: Tensors(
            "alternate", tuple(f"{_EXPERTS}.experts.{{expert}}.{part}.weight" for part in ("w1", "w3"))
        ),
        roles.EXPERT_DOWN: plain(f"{_EXPERTS}.experts.{{expert}}.w2.weight"),
        roles.KDA_IN: Tensors("stack", tuple(f"{_ATTENTION}.{part}_proj.weight" for part in "qkv")),
        roles.KDA_TAPS: Tensors("stack", tuple(f"{_ATTENTION}.{part}_conv1d.weight" for part in "qkv")),
        roles.KDA_DECAY_DOWN: plain(f"{_ATTENTION}.f_a_proj.weight"),
        roles.KDA_DECAY_UP: plain(f"{_ATTENTION}.f_b_proj.weight"),
        roles.KDA_DECAY_BIAS: plain(f"{_ATTENTION}.dt_bias"),
        roles.KDA_RATE: Tensors("spread", (f"{_ATTENTION}.A_log",), function="minus_exp"),
        roles.KDA_BETA: plain(f"{_ATTENTION}.b_proj.weight"),
        roles.KDA_GATE_DOWN: plain(f"{_ATTENTION}.g_a_proj.weight"),
        roles.KDA_GATE_UP: plain(f"{_ATTENTION}.g_b_proj.weight"),
        roles.DELTA_NORM: plain(f"{_ATTENTION}.o_norm.weight"),
        roles.DELTA_OUT: plain(f"{_ATTENTION}.o_proj.weight"),
    },
    contract=with_states(latent.CONTRACT),
    experts=experts_of,
    folded=_folded,
    tiny={
        **{key: value for key, value in latent.TINY.items() if key not in ("max_position_embeddings", "q_lora_rank")},
        "model_max_length": latent.TINY["max_position_embeddings"],
        "num_hidden_layers": 4,
        "linear_attn_config": {
            "full_attn_layers": [2, 4],
            "kda_layers": [1, 3],
            "num_heads": 3,
            "head_dim": 64,
            "short_conv_kernel_size": 4,
        },
        "num_experts": EXPERT_TINY["n_routed_experts"],
        "num_experts_per_token": EXPERT_TINY["num_experts_per_tok"],
        "num_shared_experts": 1,
        "moe_intermediate_size": 64,
        "first_k_dense_replace": 1,
    },
)
