"""RoPE of a GGUF file as `config.json` has it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import CheckpointError
from ...common.rope import Rope
from .keys import Keys

_NEVER = 1e20  # factors from here on stop a frequency, as in layers of Gemma 4 that see the whole context
# Tensors [head_dim / 2] by which the frequencies are divided: always, or in a long and in a short context.
ALWAYS, _LONG, _SHORT = ROPE_FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


def rope_scaling(keys: Keys, usual: Mapping[str, Any], where: str) -> dict[str, Any] | None:
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


def longrope(keys: Keys, factors: Mapping[str, NDArray[np.float32]], where: str) -> dict[str, Any] | None:
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


def factors_as_scaling(factors: NDArray[np.float32], config: Mapping[str, Any]) -> dict[str, Any]:
    """Llama 3's rule where the factors are what it gives, so that the table is the original's; else the factors."""
    if (factors >= _NEVER).any() and ((factors == 1) | (factors >= _NEVER)).all():
        return {"rope_type": "proportional", "partial_rotary_factor": float((factors == 1).mean())}
    rope = Rope(head_dim=config["head_dim"], theta=config["rope_theta"], max_position_embeddings=1 << 20)
    plain, _ = rope.inverse_frequencies(1)
    for exponent in range(5, 21):
        rule: dict[str, Any] = {
            "rope_type": "llama3",
            "factor": float(factors.max(initial=0)),
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 1 << exponent,
        }
        if rule["factor"] > 1 and factors.shape == plain.shape:
            scaled, _ = replace(rope, scaling=rule).inverse_frequencies(1)
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
