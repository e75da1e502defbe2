"""Latent attention as DeepSeek's files have it: config keys, checkpoint tensors, graph inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...blocks import LatentAttention
from ...common.config_keys import Key, Only
from ...common.errors import CompileError
from ...common.rope import score_growth
from ...family import Tensors, plain
from ...model_config import ModelConfig
from ...weights import roles
from . import dense

_ATTENTION = "model.layers.{layer}.self_attn"


def keys(
    latent: int = 512, query_latent: int = 1536, unturned: int = 128, turns: int = 64, values: int = 128
) -> tuple[Key | Only, ...]:
    """Those of dense decoders, and the sizes of a head, with these defaults; a file may say null for a direct q."""
    return (
        *dense.KEYS,
        Key("num_key_value_heads", absent=dense.all_heads, null=dense.all_heads),
        Key("kv_lora_rank", absent=latent),
        Key("q_lora_rank", "count", absent=query_latent, null=0),
        Key("qk_nope_head_dim", absent=unturned),
        Key("qk_rope_head_dim", absent=turns),
        Key("v_head_dim", absent=values),
        Key("attention_bias", "flag", absent=False),
    )


IN_PAIRS = Key("rope_interleave", "flag", absent=True, null=False)


def sizes(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """A head's elements that turn are all that tables and `ModelConfig` know of its size, whatever `head_dim` is."""
    heads, kv_heads, turns = values["num_attention_heads"], values["num_key_value_heads"], values["qk_rope_head_dim"]
    if kv_heads != heads:
        raise CompileError(
            f"config.json: num_key_value_heads={kv_heads} with latent attention, expected {heads}, num_attention_heads"
        )
    return {"head_dim": turns, "rotary_dim": turns}


def attention(config: ModelConfig, *, in_pairs: bool) -> LatentAttention:
    """Returns the block of a layer."""
    flags = config.flags
    size = flags["qk_nope_head_dim"] + flags["qk_rope_head_dim"]
    return LatentAttention(
        latent=flags["kv_lora_rank"],
        unturned=flags["qk_nope_head_dim"],
        values=flags["v_head_dim"],
        query_latent=flags["q_lora_rank"] or None,
        bias=flags["attention_bias"],
        scale=score_growth(config.rope_scaling) * size**-0.5,
        in_pairs=in_pairs,
    )


TENSORS: Mapping[roles.Role, Tensors] = {
    **dense.TENSORS,
    roles.QUERY_LATENT: plain(f"{_ATTENTION}.q_a_proj.weight"),
    roles.QUERY_LATENT_BIAS: plain(f"{_ATTENTION}.q_a_proj.bias"),
    roles.QUERY_LATENT_NORM: plain(f"{_ATTENTION}.q_a_layernorm.weight"),
    roles.QUERIES: Tensors("by_heads", (f"{_ATTENTION}.q_b_proj.weight",)),
    roles.DIRECT_QUERIES: Tensors("by_heads", (f"{_ATTENTION}.q_proj.weight",)),
    roles.LATENT: Tensors("by_heads", (f"{_ATTENTION}.kv_a_proj_with_mqa.weight",)),
    roles.LATENT_BIAS: Tensors("by_heads", (f"{_ATTENTION}.kv_a_proj_with_mqa.bias",)),
    roles.LATENT_NORM: plain(f"{_ATTENTION}.kv_a_layernorm.weight"),
    roles.KEY_HEADS: Tensors("keys_of_heads", (f"{_ATTENTION}.kv_b_proj.weight",)),
    roles.VALUE_HEADS: Tensors("values_of_heads", (f"{_ATTENTION}.kv_b_proj.weight",)),
}


GGUF_NAMES = {
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",  # of files of before April 2025
}
GGUF_HEAD = "rope.dimension_count"  # as `sizes` has it
GGUF_JOINED = (("self_attn.kv_b_proj.weight", ("attn_k_b.weight", "attn_v_b.weight")),)
_LATENT, _QUERIES, _LOGARITHM = "attention.kv_lora_rank", "attention.q_lora_rank", "rope.scaling.yarn_log_multiplier"
GGUF_ALSO = (_LATENT, _QUERIES, "attention.key_length_mla", "attention.value_length_mla", _LOGARITHM)


def of_gguf(get: Callable[[str], Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the sizes of a head. Files have one head of keys, that of all; early ones have a head's own sizes alone."""
    turns, heads = config["head_dim"], config["num_attention_heads"]
    size = get("attention.key_length_mla") or get("attention.key_length")
    values = get("attention.value_length_mla") or get("attention.value_length") or config["hidden_size"] // heads
    if not isinstance(size, int) or size <= turns:
        raise CompileError(f"a head of keys has {size!r:.40} elements, expected more than the {turns} that turn")
    scaling = config["rope_scaling"]
    if scaling is not None and scaling["rope_type"] == "yarn" and (grows := get(_LOGARITHM)):
        if isinstance(grows, bool) or not isinstance(grows, int | float):
            raise CompileError(f"{_LOGARITHM}={grows!r:.40}, expected a number")
        scaling = {**scaling, **dict.fromkeys(("mscale", "mscale_all_dim"), float(f"{10 * grows:.6g}"))}
    return {
        "kv_lora_rank": get(_LATENT),
        "q_lora_rank": get(_QUERIES) or None,
        "qk_nope_head_dim": size - turns,
        "qk_rope_head_dim": turns,
        "v_head_dim": values,
        "num_key_value_heads": heads,
        "rope_scaling": scaling,
    }


# One cache for each layer, with the names that others have for their keys.
CONTRACT = replace(dense.CONTRACT, per_layer=(replace(dense.CONTRACT.per_layer[0], role="latent_cache"),))

TINY: Mapping[str, Any] = {
    **dense.TINY,
    "num_key_value_heads": dense.TINY["num_attention_heads"],
    "kv_lora_rank": 128,
    "q_lora_rank": 64,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
}
