"""The metadata of a GGUF file as a `config.json`, for the families to read as any other."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import CheckpointError
from ...families import FAMILIES
from ...family import HEADS_BY_LAYER, Family
from .keys import CENTRED, INNER, SECTIONS, Keys
from .rope import ALWAYS, factors_as_scaling, longrope, rope_scaling


def family_of(metadata: Mapping[str, Any], where: str) -> Family:
    """Returns the family of a GGUF file.

    Raises:
        CheckpointError: None of this compiler.
    """
    if metadata.get("is_hmm"):  # as the vendor delivers models, and as `tcim-lite pack` writes them
        raise CheckpointError(
            f"{where} holds compiled graphs, which programs load with Option.set_model_offset; to compile, give the "
            "checkpoint that they were made of"
        )
    arch = metadata.get("general.architecture")
    windowed, sparse = (bool(_value(metadata, f"{arch}.{key}")) for key in ("attention.sliding_window", "expert_count"))
    forms = [(family, family.gguf) for family in FAMILIES.values() if family.gguf is not None]
    fitting = [(family, form) for family, form in forms if arch in (form.arch, *form.alike)]

    def get(key: str) -> Any:
        value = metadata.get(f"{arch}.{key}")
        return value.tolist() if isinstance(value, np.ndarray) else value

    for family, form in fitting:
        of_file = (family.experts is not None) == sparse and (sparse or form.windowed == windowed) and form.fits(get)
        if len(fitting) == 1 or of_file:
            return family
    known = {arch for _, form in forms for arch in (form.arch, *form.alike)}
    raise CheckpointError(
        f"{where}: general.architecture is {arch!r}, supported are {', '.join(sorted(known))}; compile the "
        "Hugging Face folder of the model instead, if docs/models.md has its family"
    )


def _value(metadata: Mapping[str, Any], key: str) -> Any:
    """Of a key that may have one for each layer, that of the first."""
    value = metadata.get(key)
    return (value.tolist() or [None])[0] if isinstance(value, np.ndarray) else value


def config_json(
    metadata: Mapping[str, Any],
    tensors: Collection[str],
    vocab_size: int,
    rope_factors: Mapping[str, NDArray[np.float32]],
    where: str,
) -> dict[str, Any]:
    """Returns the `config.json` of a GGUF file.

    Args:
        metadata: Of the file.
        tensors: Names of its tensors, in its own spelling.
        vocab_size: Rows of its embedding.
        rope_factors: Its tensors of `ROPE_FACTORS`.
        where: Names the file in messages.

    Raises:
        CheckpointError: A key is missing or not supported.
    """
    family = family_of(metadata, where)
    assert family.gguf is not None
    keys = Keys(metadata, family, where)
    hidden, heads = keys.need("embedding_length"), keys.need("attention.head_count")
    if not _are_sizes(hidden, heads):
        raise CheckpointError(
            f"{where}: embedding_length={hidden!r} and attention.head_count={heads!r} must be positive"
        )
    head_dim = keys.get(family.gguf.head, hidden // heads)
    if not _are_sizes(head_dim):
        raise CheckpointError(f"{where}: the keys of a head have {head_dim!r:.80} elements, expected a positive number")
    usual = family.gguf.head == "attention.key_length"
    rotary_dim = _rotary_dim(keys, family, head_dim, where) if usual else head_dim
    config = {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "vocab_size": vocab_size,
        "hidden_size": hidden,
        "intermediate_size": _inner(keys, family),
        "num_hidden_layers": _layers(keys, where),
        "num_attention_heads": heads,
        "num_key_value_heads": _kv_heads(keys, family, heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": keys.need("context_length"),
        "rms_norm_eps": _epsilon(keys, family),
        "tie_word_embeddings": "output.weight" not in tensors,
        "rope_theta": keys.get("rope.freq_base", 10000.0),
        "partial_rotary_factor": _quotient(rotary_dim, head_dim),
        "rope_scaling": longrope(keys, rope_factors, where) or rope_scaling(keys, family.rope_scaling, where),
        "attention_bias": not {"blk.0.attn_q.bias", "blk.0.attn_qkv.bias"}.isdisjoint(tensors),
        "attention_out_bias": "blk.0.attn_output.bias" in tensors,
        "mamba_rms_norm": "blk.0.ssm_norm.weight" in tensors,
        "mlp_bias": "blk.0.ffn_down.bias" in tensors,
        "qkv_bias": not {"blk.0.attn_q.bias", "blk.0.attn_qkv.bias"}.isdisjoint(tensors),
        "attention_k_eq_v": any(
            name.replace("attn_k.", "attn_v.") not in tensors for name in tensors if ".attn_k.w" in name
        ),
        "use_qk_norm": "blk.0.attn_q_norm.weight" in tensors,
        "use_parallel_residual": "blk.0.ffn_norm.weight" not in tensors,
        "sliding_window": keys.get("attention.sliding_window") or None,  # Phi-4's says 0
    }
    config |= {theirs: keys.need(ours) for ours, theirs in family.gguf.keys.items()}
    if family.axes is not None:
        config["rope_scaling"] = {**(config["rope_scaling"] or {"rope_type": "default"}), **_sections(keys, where)}
    if family.experts is not None and ("expert_count" not in family.gguf.also or keys.get("expert_count")):
        config |= _expert_keys(keys)
    if ALWAYS in rope_factors:
        if config["rope_scaling"] is not None:
            raise CheckpointError(f"{where} has both {ALWAYS} and rope.scaling, expected one of them")
        config["rope_scaling"] = factors_as_scaling(rope_factors[ALWAYS], config)
    config |= family.gguf.derived(keys.given, config)
    if config["sliding_window"] and not family.gguf.windowed:
        raise CheckpointError(f"{where}: {family.gguf.arch}.attention.sliding_window is not supported here")
    own = {theirs: config[name] for name, theirs in family.spelled.items() if name in config}
    return {**own, **config}


def _epsilon(keys: Keys, family: Family) -> Any:
    """That of norms that do not centre rows; the converter writes EXAONE's under the name of those that do."""
    assert family.gguf is not None
    if CENTRED in family.gguf.keys:
        return None
    usual = "attention.layer_norm_rms_epsilon"
    return keys.need(CENTRED if CENTRED in family.gguf.also and keys.get(usual) is None else usual)


def _kv_heads(keys: Keys, family: Family, heads: int) -> Any:
    """Those of all layers, apart from layers without attention, which a family may have."""
    assert family.gguf is not None
    by_layer = keys.given(HEADS_BY_LAYER)
    if HEADS_BY_LAYER in family.gguf.also and isinstance(by_layer, list):
        found = [count for count in dict.fromkeys(by_layer) if count]
        if len(found) == 1 or (found and family.gguf.head != "attention.key_length"):
            return found[0]
    return keys.get(HEADS_BY_LAYER, heads)


def _inner(keys: Keys, family: Family) -> Any:
    """That of all layers, or of the first that has one in a family whose layers differ."""
    assert family.gguf is not None
    by_layer = keys.given(INNER)
    if INNER in family.gguf.also and isinstance(by_layer, list) and any(by_layer):
        return next(filter(None, by_layer))
    return keys.need(INNER)


def _expert_keys(keys: Keys) -> dict[str, Any]:
    return {
        **dict.fromkeys(("num_experts", "n_routed_experts"), keys.need("expert_count")),
        "num_experts_per_tok": keys.need("expert_used_count"),
        # Mixtral's files have one length for both.
        "moe_intermediate_size": keys.get("expert_feed_forward_length") or keys.need(INNER),
        "norm_topk_prob": True,  # as llama.cpp does in any case
    }


def _layers(keys: Keys, where: str) -> int:
    """The layers of the model, without those behind it that predict further tokens."""
    layers, further = keys.need("block_count"), keys.get("nextn_predict_layers") or 0
    if not _are_sizes(layers):
        raise CheckpointError(f"{where}: block_count={layers!r:.80}, expected a positive number of layers")
    if further and (not _are_sizes(further) or further >= layers):
        raise CheckpointError(f"{where}: nextn_predict_layers={further!r} of block_count={layers!r}, expected fewer")
    return int(layers - further)


def _sections(keys: Keys, where: str) -> dict[str, Any]:
    sections = keys.given(SECTIONS)
    if not isinstance(sections, list) or len(sections) not in (3, 4) or any(sections[3:]):
        raise CheckpointError(f"{where}: {SECTIONS} is {sections!r:.80}, expected three numbers and a zero")
    return {"mrope_section": sections[:3]}


def _are_sizes(*numbers: Any) -> bool:
    return all(isinstance(number, int) and not isinstance(number, bool) and number > 0 for number in numbers)


def _rotary_dim(keys: Keys, family: Family, head_dim: int, where: str) -> int:
    """How many columns of a head RoPE rotates: all, or in some families an even part of them.

    Raises:
        CheckpointError: It is another number, or values are not as long as keys.
    """
    assert family.gguf is not None
    for key in ("attention.value_length", "rope.dimension_count"):
        partly = key == "rope.dimension_count" and family.rotary is not None
        value = keys.get(key, head_dim)
        if value != head_dim and not (partly and value in range(2, head_dim, 2)):
            raise CheckpointError(
                f"{where}: {family.gguf.arch}.{key} is {value}, expected the {head_dim} of a head of keys"
                + (", or an even part of them" if partly else "")
            )
    return int(keys.get("rope.dimension_count", head_dim))


def _quotient(part: int, whole: int) -> float:
    """A number q for which int(whole * q), as readers of `config.json` compute it, is `part`."""
    rounded = part / whole
    return rounded if int(whole * rounded) == part else math.nextafter(rounded, 1.0)
