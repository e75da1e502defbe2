"""RoPE tables, computed in fp32 as transformers' rotary embeddings are for the same config.

Same formulas and same fp32 roundings, except that powers, cosines and sines are correctly rounded from float64, while
torch's vector library may be off by one unit in the last place (and differs between CPUs). So tables do not depend on
the machine that compiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import CompileError

# LongRoPE of Phi-3.5-MoE, which has the factors of cosines and sines by names of their own.
BY_MSCALE = "longrope by mscale"
ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional")
_F32 = np.float32


@dataclass(frozen=True, kw_only=True)
class RopeTable:
    """Cosines and sines by position: both [context, head_dim / 2] fp32, attention scaling multiplied in."""

    cos: NDArray[np.float32]
    sin: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Rope:
    """A rotary embedding.

    Attributes:
        head_dim: Even size of a head.
        theta: Base of the frequencies.
        scaling: `rope_type` and its parameters, as in the config.
        max_position_embeddings: From the config; "default" and others do not read it.
    """

    head_dim: int
    theta: float
    scaling: Mapping[str, Any] = field(default_factory=lambda: {"rope_type": "default"})
    max_position_embeddings: int = 0

    def table(self, context_length: int) -> RopeTable:
        """Returns the table for positions 0 .. context_length - 1.

        `dynamic` and `longrope` choose their frequencies for this length, as transformers does once the context has
        grown to it.

        Raises:
            CompileError: An unknown rope type or a parameter is missing.
        """
        inv_freq, factor = self.inverse_frequencies(context_length)
        angles = np.arange(context_length, dtype=_F32)[:, None] * inv_freq
        wide = angles.astype(np.float64)
        return RopeTable(cos=np.cos(wide).astype(_F32) * _F32(factor), sin=np.sin(wide).astype(_F32) * _F32(factor))

    def inverse_frequencies(self, context_length: int) -> tuple[NDArray[np.float32], float]:
        """Returns the inverse frequencies [head_dim / 2] fp32 and the attention factor; raises as `table`."""
        rope_type = self.scaling.get("rope_type", "default")
        if rope_type not in (*ROPE_TYPES, BY_MSCALE):
            raise CompileError(f"rope_type {rope_type!r} is not supported; supported are {', '.join(ROPE_TYPES)}")
        try:
            with np.errstate(all="ignore"):
                found, factor = self._frequencies(rope_type, context_length)
                if np.isfinite([*(found * _F32(context_length)), _F32(factor)]).all():
                    return found, factor
        except CompileError:
            raise
        except (ArithmeticError, ValueError):  # divisions by zero, logarithms of it
            pass
        numbers = {
            "rope_theta": self.theta,
            **{key: value for key, value in self.scaling.items() if not isinstance(value, list)},
        }
        raise CompileError(
            f"rope_type {rope_type!r} has no angles for {context_length} positions and {self.head_dim} elements of a "
            f"head that turn, by {numbers}; check these numbers of config.json"
        )

    def _frequencies(self, rope_type: str, context_length: int) -> tuple[NDArray[np.float32], float]:
        head_dim, theta, scaling, most = self.head_dim, self.theta, self.scaling, self.max_position_embeddings
        if rope_type == "default":
            return _F32(1) / _powers(theta, head_dim), 1.0
        if rope_type == "proportional":
            turned = int(_number(scaling, "partial_rotary_factor", 1.0) * head_dim // 2)
            if not 1 <= turned <= head_dim // 2:
                raise CompileError(
                    f"rope_type 'proportional': partial_rotary_factor turns {turned} of {head_dim // 2} pairs"
                )
            frequencies = _F32(1) / _powers(theta, head_dim) / _F32(_number(scaling, "factor", 1.0))
            return np.where(np.arange(head_dim // 2) < turned, frequencies, _F32(0)), 1.0
        if rope_type == "linear":
            return _F32(1) / _powers(theta, head_dim) / _F32(_number(scaling, "factor")), 1.0
        if rope_type == "dynamic" and scaling.get("alpha"):  # Hunyuan's, which does not grow with the context
            base = theta * _number(scaling, "alpha") ** (head_dim / (head_dim - 2))
            return _F32(1) / _powers(base, head_dim), 1.0
        if rope_type == "dynamic":
            factor, seq_len = _number(scaling, "factor"), max(context_length, most)
            growth = (factor * seq_len / most) - (factor - 1)
            return _F32(1) / _powers(theta * growth ** (head_dim / (head_dim - 2)), head_dim), 1.0
        original = int(_number(scaling, "original_max_position_embeddings", most))
        if rope_type == "yarn":
            return self._yarn(original)
        if rope_type in ("longrope", BY_MSCALE):
            return self._longrope(original, context_length)
        return self._llama3(original), 1.0

    def _yarn(self, original: int) -> tuple[NDArray[np.float32], float]:
        head_dim, scaling = self.head_dim, self.scaling
        factor = _number(scaling, "factor", self.max_position_embeddings / original)
        if scaling.get("attention_factor") is not None:
            attention_factor = _number(scaling, "attention_factor")
        elif scaling.get("mscale") and scaling.get("mscale_all_dim"):
            top, bottom = _number(scaling, "mscale"), _number(scaling, "mscale_all_dim")
            attention_factor = _mscale(factor, top) / _mscale(factor, bottom)
        else:
            attention_factor = _mscale(factor)

        def correction(rotations: float) -> float:
            return (head_dim * math.log(original / (rotations * 2 * math.pi))) / (2 * math.log(self.theta))

        low, high = correction(_number(scaling, "beta_fast", 32)), correction(_number(scaling, "beta_slow", 1))
        if scaling.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, head_dim - 1)
        span = high - low if high != low else 0.001
        ramp = np.clip((np.arange(head_dim // 2, dtype=_F32) - _F32(low)) / _F32(span), 0, 1)
        keep = _F32(1) - ramp
        powers = _powers(self.theta, head_dim)
        interpolated, extrapolated = _F32(1) / (_F32(factor) * powers), _F32(1) / powers
        return interpolated * (_F32(1) - keep) + extrapolated * keep, float(attention_factor)

    def _longrope(self, original: int, context_length: int) -> tuple[NDArray[np.float32], float]:
        head_dim, scaling = self.head_dim, self.scaling
        factor = _number(scaling, "factor", self.max_position_embeddings / original)
        mscale = "long_mscale" if context_length > original else "short_mscale"
        by_mscale = scaling["rope_type"] == BY_MSCALE and scaling.get(mscale) is not None
        given = mscale if by_mscale else "attention_factor"
        if scaling.get(given) is not None:
            attention_factor = _number(scaling, given)
        else:
            attention_factor = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
        key = "long_factor" if context_length > original else "short_factor"
        try:
            stretch = np.asarray(scaling.get(key) or (), dtype=_F32)
        except (TypeError, ValueError):
            raise CompileError(f"rope_type 'longrope' needs numbers in {key!r}, got {scaling[key]!r:.40}") from None
        if stretch.shape != (head_dim // 2,):
            raise CompileError(f"rope_type 'longrope' needs {key!r} with {head_dim // 2} numbers, got {stretch.size}")
        if not (np.isfinite(stretch) & (stretch > 0)).all():
            raise CompileError(f"rope_type 'longrope' needs positive numbers in {key!r}")
        return _F32(1) / (stretch * _powers(self.theta, head_dim)), float(attention_factor)

    def _llama3(self, original: int) -> NDArray[np.float32]:
        factor, low, high = (_number(self.scaling, key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
        inv_freq = _F32(1) / _powers(self.theta, self.head_dim)
        # torch computes number / tensor as reciprocal(tensor) * number: two roundings.
        wavelength = _F32(1) / inv_freq * _F32(2 * math.pi)
        scaled = np.where(wavelength > _F32(original / low), inv_freq / _F32(factor), inv_freq)
        smooth = (_F32(1) / wavelength * _F32(original) - _F32(low)) / _F32(high - low)
        smoothed = (_F32(1) - smooth) * scaled / _F32(factor) + smooth * scaled
        medium = (wavelength >= _F32(original / high)) & (wavelength <= _F32(original / low))
        return np.where(medium, smoothed, scaled)


def grown(table: RopeTable, scaling: Mapping[str, Any]) -> RopeTable:
    """Returns the table that also multiplies what it rotates, by 1 + b log(1 + n) in the n-th original context."""
    beta, original = _number(scaling, "llama_4_scaling_beta"), _number(scaling, "original_max_position_embeddings")
    contexts = np.floor(np.arange(len(table.cos)) / original)
    factors = (1 + beta * np.log1p(contexts)).astype(_F32)[:, None]
    return RopeTable(cos=table.cos * factors, sin=table.sin * factors)


def query_growth(keys: Mapping[str, Any], context: int) -> NDArray[np.float32]:
    """Returns what Llama 4 multiplies q by in layers that do not turn, [context] fp32.

    At a position that sees n times `floor_scale` tokens, itself among them, it is 1 + `attn_scale` * log(1 + n), with n
    rounded down.
    """
    seen = np.floor((np.arange(context, dtype=_F32) + _F32(1)) / _F32(keys["floor_scale"]))
    factors: NDArray[np.float32] = (np.log1p(seen.astype(np.float64)) * keys["attn_scale"] + 1).astype(_F32)
    return factors


def unturned(head_dim: int, factors: NDArray[np.float32]) -> RopeTable:
    """Returns the table that turns nothing, and multiplies every element by the factor of its position."""
    cos = np.repeat(factors[:, None], head_dim // 2, axis=1)
    return RopeTable(cos=cos, sin=np.zeros_like(cos))


def _powers(base: float, head_dim: int) -> NDArray[np.float32]:
    exponents = np.arange(0, head_dim, 2, dtype=_F32) / _F32(head_dim)
    return np.power(np.float64(_F32(base)), exponents.astype(np.float64)).astype(_F32)


def _number(scaling: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = scaling.get(key) or default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 3.4e38:
        raise CompileError(f"rope_type {scaling['rope_type']!r} needs a positive {key!r}, got {scaling.get(key)!r:.40}")
    return value


def _mscale(scale: float, weight: float = 1) -> float:
    return 1.0 if scale <= 1 else 0.1 * weight * math.log(scale) + 1.0


def score_growth(scaling: Mapping[str, Any]) -> float:
    """Returns what DeepSeek's models multiply the scale of scores by, where RoPE is for longer contexts."""
    if scaling.get("rope_type", "default") == "default" or not scaling.get("mscale_all_dim"):
        return 1.0
    return _mscale(_number(scaling, "factor"), _number(scaling, "mscale_all_dim")) ** 2


def sinusoids(positions: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    """Sines, then cosines, of frequencies that fall from 1 to 1 / 10000, as Whisper has them: [positions, width]."""
    half = width // 2
    angles = positions[:, None] * np.exp(-np.log(10000.0) / max(half - 1, 1) * np.arange(half))
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)
