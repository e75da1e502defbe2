"""The part of a Qwen3 `config.json` that decides the graph, in old and new spellings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..common.errors import CompileError

_SUPPORTED = "this compiler takes Qwen3 dense causal language models (Qwen3ForCausalLM, model_type 'qwen3')"
_MAX_FLOAT = 3.4e38
_MAX_SIZE = 1 << 24  # far above any real model; a typing error should not fill the memory


@dataclass(frozen=True, kw_only=True)
class Qwen3Config:
    """Sizes and constants of a Qwen3 dense model.

    `rope_scaling` always holds `rope_type`; `window` is the smallest sliding window of any layer, None without one.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    attention_bias: bool
    tie_word_embeddings: bool
    max_position_embeddings: int
    rope_theta: float
    rope_scaling: Mapping[str, Any]
    window: int | None
    dtype: str | None

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Qwen3Config:
        """Reads a parsed `config.json`; unknown keys are ignored.

        What is absent takes transformers' default for Qwen3, except that `num_key_value_heads` defaults to the number
        of heads. Spellings: `rope_parameters`, or `rope_theta` with `rope_scaling`; `dtype` or `torch_dtype`.

        Raises:
            CompileError: Another architecture, or a value that is missing, malformed or not supported.
        """
        _check_architecture(raw)
        hidden, heads = _size(raw, "hidden_size"), _size(raw, "num_attention_heads")
        head_dim = _size(raw, "head_dim", 128) if raw.get("head_dim", 128) is not None else hidden // heads
        kv_heads = _size(raw, "num_key_value_heads", heads) if raw.get("num_key_value_heads") is not None else heads
        if heads % kv_heads:
            raise CompileError(f"num_attention_heads={heads} is not a multiple of num_key_value_heads={kv_heads}")
        if head_dim % 2:
            raise CompileError(f"head_dim={head_dim} is odd; RoPE rotates pairs")
        if raw.get("hidden_act", "silu") != "silu":
            raise CompileError(f"hidden_act={raw['hidden_act']!r} is not supported; Qwen3 uses 'silu'")
        layers = _size(raw, "num_hidden_layers")
        max_positions = _size(raw, "max_position_embeddings", 32768)
        theta, scaling = _rope(raw, max_positions)
        return cls(
            vocab_size=_size(raw, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=_size(raw, "intermediate_size"),
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            rms_norm_eps=_positive(raw, "rms_norm_eps", 1e-6),
            attention_bias=_flag(raw, "attention_bias"),
            tie_word_embeddings=_flag(raw, "tie_word_embeddings"),
            max_position_embeddings=max_positions,
            rope_theta=theta,
            rope_scaling=scaling,
            window=_window(raw, layers),
            dtype=raw.get("dtype") or raw.get("torch_dtype"),
        )

    def check_context(self, context_length: int) -> None:
        """Raises CompileError if a sliding window would cut attention within `context_length`."""
        if self.window is not None and self.window < context_length:
            raise CompileError(
                f"the checkpoint uses sliding-window attention over {self.window} tokens, which is not supported; "
                f"compile with --context-length {self.window} or less, where the window has no effect"
            )


def _check_architecture(raw: Mapping[str, Any]) -> None:
    architectures, model_type = raw.get("architectures"), raw.get("model_type")
    found = f"architectures={architectures!r}, model_type={model_type!r}"
    listed = isinstance(architectures, (list, str)) and "Qwen3ForCausalLM" in architectures
    names_qwen3 = listed if architectures else model_type == "qwen3"
    if not names_qwen3 or model_type not in (None, "qwen3"):
        raise CompileError(f"config.json describes another architecture ({found}); {_SUPPORTED}")
    if quantization := raw.get("quantization_config"):
        method = quantization.get("quant_method", "?") if isinstance(quantization, Mapping) else quantization
        raise CompileError(f"the checkpoint is already quantised ({method!r}); use the original bf16 checkpoint")


def _size(raw: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = raw.get(key, default)
    if value is None:
        raise CompileError(f"config.json has no {key!r}")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CompileError(f"config.json: {key} must be a positive integer, got {value!r}")
    if value > _MAX_SIZE:
        raise CompileError(f"config.json: {key} must be at most {_MAX_SIZE}, got {value}")
    return value


def _positive(raw: Mapping[str, Any], key: str, default: float) -> float:
    value = raw.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < _MAX_FLOAT:
        raise CompileError(f"config.json: {key} must be a positive number in the range of float32, got {value!r:.40}")
    return float(value)


def _flag(raw: Mapping[str, Any], key: str) -> bool:
    value = raw.get(key, False)
    if not isinstance(value, bool):
        raise CompileError(f"config.json: {key} must be true or false, got {value!r}")
    return value


def _rope(raw: Mapping[str, Any], max_positions: int) -> tuple[float, dict[str, Any]]:
    # transformers lets a rope_scaling that is present win over rope_parameters.
    scaling = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(scaling, Mapping):
        raise CompileError(f"config.json: rope parameters must be an object, got {scaling!r}")
    if isinstance(scaling.get("full_attention"), Mapping):  # nested by layer type
        scaling = scaling["full_attention"]
    scaling = dict(scaling)
    # Older files say "type"; the vendor's own say both.
    scaling["rope_type"] = scaling.get("rope_type") or scaling.pop("type", None) or "default"
    if (raw.get("partial_rotary_factor") or scaling.get("partial_rotary_factor") or 1.0) != 1.0:
        raise CompileError("partial_rotary_factor other than 1 is not supported")
    theta = scaling.pop("rope_theta", None)
    theta = _positive(raw if theta is None else {"rope_theta": theta}, "rope_theta", 10000.0)
    if "original_max_position_embeddings" in raw:
        scaling["original_max_position_embeddings"] = raw["original_max_position_embeddings"]
    scaling.setdefault("original_max_position_embeddings", max_positions)
    return theta, scaling


def _window(raw: Mapping[str, Any], layers: int) -> int | None:
    types = raw.get("layer_types")
    window = raw.get("sliding_window", 4096) if _flag(raw, "use_sliding_window") else None
    if types is None:
        first = raw.get("max_window_layers", 28)
        if isinstance(first, bool) or not isinstance(first, int):
            raise CompileError(f"config.json: max_window_layers must be an integer, got {first!r}")
        slides = first < layers
    else:
        kinds = ("full_attention", "sliding_attention")
        if not isinstance(types, list) or len(types) != layers or any(kind not in kinds for kind in types):
            raise CompileError(f"config.json: layer_types must name {layers} attention layers, got {types!r}")
        slides = "sliding_attention" in types
        if slides and window is None:
            window = raw.get("sliding_window")
    return _size({"sliding_window": window}, "sliding_window") if slides and window is not None else None
