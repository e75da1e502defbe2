"""What dense decoders share that keep Llama's names: config keys, checkpoint tensors, graph inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...common.config_keys import Key, Only
from ...contract import CONTRACT as CONTRACT
from ...family import Tensors, gate_up, plain
from ...weights import roles


def hidden_per_head(values: Mapping[str, Any]) -> int:
    """The usual head_dim of a config that does not give one."""
    return int(values["hidden_size"] // values["num_attention_heads"])


def all_heads(values: Mapping[str, Any]) -> int:
    """The usual num_key_value_heads of a config that does not give one."""
    return int(values["num_attention_heads"])


def four_times(values: Mapping[str, Any]) -> int:
    """The usual intermediate_size of a config without a gate in the MLP that does not give one."""
    return 4 * int(values["hidden_size"])


# Defaults are those of transformers, except that the sizes of a model must be given.
KEYS: tuple[Key | Only, ...] = (
    Key("vocab_size"),
    Key("hidden_size"),
    Key("intermediate_size"),
    Key("num_hidden_layers"),
    Key("num_attention_heads"),
    Key("num_key_value_heads", absent=all_heads, null=all_heads),
    Key("head_dim", absent=hidden_per_head, null=hidden_per_head),
    Key("rms_norm_eps", "number", absent=1e-6),
    Key("tie_word_embeddings", "flag", absent=False),
    Only("hidden_act", "silu"),
    Only("is_causal", True),
)

_LAYER = "model.layers.{layer}"
_ATTENTION, _MLP = f"{_LAYER}.self_attn", f"{_LAYER}.mlp"


# Of families whose config says whether their modules have biases.
BIASES = (Key("attention_bias", "flag", absent=False), Key("mlp_bias", "flag", absent=False))


def _qkv(what: str) -> Tensors:
    return Tensors("stack", tuple(f"{_ATTENTION}.{part}_proj.{what}" for part in "qkv"))


TENSORS: Mapping[roles.Role, Tensors] = {
    roles.EMBEDDING: plain("model.embed_tokens.weight"),
    roles.ATTENTION_NORM: plain(f"{_LAYER}.input_layernorm.weight"),
    roles.QKV: _qkv("weight"),
    roles.QKV_BIAS: _qkv("bias"),
    roles.Q_NORM: plain(f"{_ATTENTION}.q_norm.weight"),
    roles.K_NORM: plain(f"{_ATTENTION}.k_norm.weight"),
    roles.ATTENTION_OUT: plain(f"{_ATTENTION}.o_proj.weight"),
    roles.ATTENTION_OUT_BIAS: plain(f"{_ATTENTION}.o_proj.bias"),
    roles.MLP_NORM: plain(f"{_LAYER}.post_attention_layernorm.weight"),
    roles.GATE_UP: gate_up(_MLP),
    roles.GATE_UP_BIAS: gate_up(_MLP, "bias"),
    roles.DOWN: plain(f"{_MLP}.down_proj.weight"),
    roles.DOWN_BIAS: plain(f"{_MLP}.down_proj.bias"),
    roles.FINAL_NORM: plain("model.norm.weight"),
    roles.HEAD: Tensors("tied", ("lm_head.weight",)),
}

# Of families whose heads of q and k turn in pairs of neighbours.
QKV_IN_PAIRS: Mapping[roles.Role, Tensors] = {
    role: replace(TENSORS[role], transform="in_pairs") for role in (roles.QKV, roles.QKV_BIAS)
}

# Of families whose norms are behind attention and MLP, and none before.
NORMS_BEHIND: Mapping[roles.Role, Tensors] = {
    roles.ATTENTION_OUT_NORM: plain(f"{_LAYER}.post_attention_layernorm.weight"),
    roles.MLP_OUT_NORM: plain(f"{_LAYER}.post_feedforward_layernorm.weight"),
}


def expert_tensors(expert: str, shared: str | None = None) -> Mapping[roles.Role, Tensors]:
    """Those of the module of an expert, and of one that every token takes."""
    tensors = {roles.EXPERT_GATE_UP: gate_up(expert), roles.EXPERT_DOWN: plain(f"{expert}.down_proj.weight")}
    if shared is None:
        return tensors
    return {**tensors, roles.SHARED_GATE_UP: gate_up(shared), roles.SHARED_DOWN: plain(f"{shared}.down_proj.weight")}


def tensors_below(
    prefix: str, embedding: str, head: str, own: Mapping[roles.Role, Tensors] = TENSORS
) -> Mapping[roles.Role, Tensors]:
    """Those whose names begin with `prefix`, of a model with norms on q and k or without, the embedding and the head
    under names of their own."""
    tensors = {
        role: replace(source, names=tuple(prefix + name for name in source.names)) for role, source in own.items()
    }
    ends = {roles.EMBEDDING: embedding, roles.HEAD: head}
    return {**tensors, **{role: plain(prefix + name) for role, name in ends.items()}}


# As small as it gets with grouped heads and widths that are no powers of two.
TINY: Mapping[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 320,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 331,
    "max_position_embeddings": 4096,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
