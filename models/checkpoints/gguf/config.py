"""The metadata of a GGUF file as a `config.json`, for the families to read as any other."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import CheckpointError
from ...common.rope import inverse_frequencies
from ...families import FAMILIES
from ...family import Family

# Tensors [head_dim / 2] by which the frequencies are divided: always, or in a long and in a short context.
_ALWAYS, _LONG, _SHORT = ROPE_FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
# Keys of attention and RoPE, behind the architecture's name, that are read or change nothing. Others are refused.
_KNOWN = {
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.attn_factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    # `attn_factor` of config.json, which DeepSeek-R1-0528-Qwen3-8B has, by newer converters. llama.cpp reads it in none
    # of our families, transformers not at all.
    "rope.scaling.yarn_attn_factor",
}
_OF_EXPERTS = {"expert_count", "expert_used_count", "expert_feed_forward_length"}
_ARITHMETIC = ("attention.", "rope.", "expert_", "logit_scale", "residual_scale", "embedding_scale", "attn_")


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
    fitting = [(family, form) for family, form in forms if form.arch == arch]
    for family, form in fitting:
        of_file = (family.experts is not None) == sparse and (sparse or form.windowed == windowed)
        if len(fitting) == 1 or of_file:
            return family
    known = {form.arch for _, form in forms}
    raise CheckpointError(f"{where}: general.architecture is {arch!r}, supported are {', '.join(sorted(known))}")


def _value(metadata: Mapping[str, Any], key: str) -> Any:
    """Of a key that may have one for each layer, that of the first."""
    value = metadata.get(key)
    return (value.tolist() or [None])[0] if isinstance(value, np.ndarray) else value


class _Keys:
    """The keys of one architecture; numbers of 32 bits as they were meant, 1e-6 for 9.9999999e-07."""

    def __init__(self, metadata: Mapping[str, Any], family: Family, where: str) -> None:
        assert family.gguf is not None
        arch, known = family.gguf.arch, _KNOWN | (_OF_EXPERTS if family.experts else set()) | set(family.gguf.keys)
        self._values = {
            key.removeprefix(f"{arch}."): value for key, value in metadata.items() if key.startswith(f"{arch}.")
        }
        self._arch, self._where = arch, where
        for key, value in self._values.items():
            if key == "attention.causal" and value:
                continue  # as all are
            changes = value.any() if isinstance(value, np.ndarray) else value or key == "attention.causal"
            if key.startswith(_ARITHMETIC) and key not in known and changes:
                raise CheckpointError(
                    f"{where}: {arch}.{key}={value!r:.60} is not supported; known are {', '.join(sorted(known))}"
                )

    def get(self, key: str, default: Any = None) -> Any:
        value = self._values.get(key, default)
        if isinstance(value, np.ndarray):  # by layer
            if value.size == 0 or (value != value[0]).any():
                raise CheckpointError(
                    f"{self._where}: {self._arch}.{key} differs between layers, expected one number for all"
                )
            value = value.tolist()[0]
        return float(str(np.float32(value))) if isinstance(value, float) else value

    def positive(self, key: str, default: float) -> float:
        """A positive number."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise CheckpointError(f"{self._where}: {self._arch}.{key} is {value!r:.80}, expected a positive number")
        return value

    def need(self, key: str) -> Any:
        if (value := self.get(key)) is None:
            raise CheckpointError(f"{self._where} has no key {self._arch}.{key}")
        return value


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
    keys = _Keys(metadata, family, where)
    hidden, heads = keys.need("embedding_length"), keys.need("attention.head_count")
    if not _are_sizes(hidden, heads):
        raise CheckpointError(
            f"{where}: embedding_length={hidden!r} and attention.head_count={heads!r} must be positive"
        )
    head_dim = keys.get("attention.key_length", hidden // heads)
    if not _are_sizes(head_dim):
        raise CheckpointError(f"{where}: the keys of a head have {head_dim!r:.80} elements, expected a positive number")
    rotary_dim = _rotary_dim(keys, family, head_dim, where)
    config = {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "vocab_size": vocab_size,
        "hidden_size": hidden,
        "intermediate_size": keys.need("feed_forward_length"),
        "num_hidden_layers": keys.need("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.get("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": keys.need("context_length"),
        "rms_norm_eps": keys.need("attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in tensors,
        "rope_theta": keys.get("rope.freq_base", 10000.0),
        "partial_rotary_factor": _quotient(rotary_dim, head_dim),
        "rope_scaling": _longrope(keys, rope_factors, where) or _rope_scaling(keys, family.rope_scaling, where),
        "attention_bias": not {"blk.0.attn_q.bias", "blk.0.attn_qkv.bias"}.isdisjoint(tensors),
        "attention_out_bias": "blk.0.attn_output.bias" in tensors,
        "mlp_bias": "blk.0.ffn_down.bias" in tensors,
        "sliding_window": keys.get("attention.sliding_window") or None,  # Phi-4's says 0
    }
    config |= {theirs: keys.need(ours) for ours, theirs in family.gguf.keys.items()}
    if family.experts is not None:
        config |= _expert_keys(keys)
    if _ALWAYS in rope_factors:
        if config["rope_scaling"] is not None:
            raise CheckpointError(f"{where} has both {_ALWAYS} and rope.scaling, expected one of them")
        config["rope_scaling"] = _factors_as_scaling(rope_factors[_ALWAYS], config)
    if config["sliding_window"] and not family.gguf.windowed:
        raise CheckpointError(f"{where}: {family.gguf.arch}.attention.sliding_window is not supported here")
    return config


def _expert_keys(keys: _Keys) -> dict[str, Any]:
    return {
        "num_experts": keys.need("expert_count"),
        "num_experts_per_tok": keys.need("expert_used_count"),
        # Mixtral's files have one length for both.
        "moe_intermediate_size": keys.get("expert_feed_forward_length", keys.need("feed_forward_length")),
        "norm_topk_prob": True,  # as llama.cpp does in any case
    }


def _are_sizes(*numbers: Any) -> bool:
    return all(isinstance(number, int) and not isinstance(number, bool) and number > 0 for number in numbers)


def _rotary_dim(keys: _Keys, family: Family, head_dim: int, where: str) -> int:
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


def _rope_scaling(keys: _Keys, usual: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    kind = keys.get("rope.scaling.type", "linear" if keys.get("rope.scale_linear") else "none")
    factor = keys.get("rope.scaling.factor", keys.get("rope.scale_linear", 0.0))
    if kind == "none" or not factor:
        return None
    factor = keys.positive("rope.scaling.factor", factor)
    if kind not in ("linear", "yarn"):
        raise CheckpointError(f"{where}: rope.scaling.type is {kind!r}, supported are none, linear and yarn")
    scaling: dict[str, Any] = {"rope_type": kind, "factor": factor}
    if kind == "yarn":
        if "truncate" in usual:  # the file has no key for it
            scaling["truncate"] = usual["truncate"]
        if original := keys.get("rope.scaling.original_context_length"):
            scaling["original_max_position_embeddings"] = original
        for ours, theirs in (("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")):
            if keys.get(f"rope.scaling.{theirs}"):
                scaling[ours] = keys.get(f"rope.scaling.{theirs}")
        # Theirs multiplies the usual one, config.json's takes its place.
        if (attention := keys.positive("rope.scaling.attn_factor", 1.0)) != 1.0:
            scaling["attention_factor"] = attention * (0.1 * math.log(factor) + 1.0)
    return scaling


def _longrope(keys: _Keys, factors: Mapping[str, NDArray[np.float32]], where: str) -> dict[str, Any] | None:
    found = [name for name in (_LONG, _SHORT) if name in factors]
    if len(found) == 1:
        raise CheckpointError(f"{where} has {found[0]} alone, expected both {_LONG} and {_SHORT}")
    if not found:
        return None
    return {
        "rope_type": "longrope",
        "original_max_position_embeddings": keys.need("rope.scaling.original_context_length"),
        "attention_factor": keys.get("rope.scaling.attn_factor", 1.0),
        "short_factor": factors[_SHORT].tolist(),
        "long_factor": factors[_LONG].tolist(),
    }


def _factors_as_scaling(factors: NDArray[np.float32], config: Mapping[str, Any]) -> dict[str, Any]:
    """Llama 3's rule where the factors are what it gives, so that the table is the original's; else the factors."""
    common = {"head_dim": config["head_dim"], "theta": config["rope_theta"], "max_position_embeddings": 1 << 20}
    plain, _ = inverse_frequencies(**common, scaling={"rope_type": "default"}, context_length=1)
    for exponent in range(5, 21):
        rule: dict[str, Any] = {
            "rope_type": "llama3",
            "factor": float(factors.max(initial=0)),
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 1 << exponent,
        }
        if rule["factor"] > 1 and factors.shape == plain.shape:
            scaled, _ = inverse_frequencies(**common, scaling=rule, context_length=1)
            if np.allclose(plain / scaled, factors, rtol=1e-5, atol=0):
                return rule
    numbers = factors.tolist()
    return {
        "rope_type": "longrope",
        "factor": 1.0,
        "attention_factor": 1.0,
        "short_factor": numbers,
        "long_factor": numbers,
    }
