"""Tiny checkpoints, written with numpy alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# For modules that several tests share.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "llm")]

ml_dtypes = pytest.importorskip("ml_dtypes", reason="needs the extra [compile]")
safetensors_numpy = pytest.importorskip("safetensors.numpy", reason="needs the extra [compile]")

Tensors = dict[str, np.ndarray]
TINY: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 83,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": False,
    "attention_bias": False,
    "use_sliding_window": False,
}


def tiny_tensors(config: dict[str, Any], dtype: Any = ml_dtypes.bfloat16) -> Tensors:
    """Random tensors with the names and shapes of a Qwen3 checkpoint."""
    rng = np.random.default_rng(7)
    hidden, inner, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q_rows, kv_rows = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        projections = {"q_proj": (q_rows, hidden), "k_proj": (kv_rows, hidden), "v_proj": (kv_rows, hidden)}
        for name, shape in {**projections, "o_proj": (hidden, q_rows)}.items():
            shapes[f"{prefix}self_attn.{name}.weight"] = shape
            if config["attention_bias"]:
                shapes[f"{prefix}self_attn.{name}.bias"] = shape[:1]
        for name, shape in {
            "gate_proj": (inner, hidden),
            "up_proj": (inner, hidden),
            "down_proj": (hidden, inner),
        }.items():
            shapes[f"{prefix}mlp.{name}.weight"] = shape
        for name, length in {"self_attn.q_norm": head_dim, "self_attn.k_norm": head_dim}.items():
            shapes[f"{prefix}{name}.weight"] = (length,)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{prefix}{name}.weight"] = (hidden,)
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return {
        name: (rng.standard_normal(shape) * 0.1 + name.endswith("norm.weight")).astype(dtype)
        for name, shape in shapes.items()
    }


def write_checkpoint(folder: Path, config: dict[str, Any], tensors: Tensors, *, shards: int = 1) -> Path:
    """Writes config, a placeholder for a tokenizer, and the tensors in one file or in shards with an index."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    if shards == 1:
        safetensors_numpy.save_file(tensors, folder / "model.safetensors")
        return folder
    names, weight_map = sorted(tensors), {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        safetensors_numpy.save_file(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


@pytest.fixture
def make_checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """make_checkpoint(shards=, dtype=, edit=, **config changes) -> folder; `edit` may change the tensors in place."""
    count = 0

    def make(
        *,
        shards: int = 1,
        dtype: Any = ml_dtypes.bfloat16,
        edit: Callable[[Tensors], Any] | None = None,
        **changes: Any,
    ) -> Path:
        nonlocal count
        count += 1
        config = {**TINY, **changes}
        tensors = tiny_tensors(config, dtype)
        if edit is not None:
            edit(tensors)
        return write_checkpoint(tmp_path / f"checkpoint{count}", config, tensors, shards=shards)

    return make


@pytest.fixture
def tiny_config() -> dict[str, Any]:
    return dict(TINY)


@pytest.fixture
def make_package(tmp_path: Path) -> Callable[..., Path]:
    """make_package(checkpoint, **compile options) -> package folder, with a short chunk and context."""
    from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

    count = 0

    def make(checkpoint: Path, **options: Any) -> Path:
        nonlocal count
        count += 1
        output = tmp_path / f"package{count}"
        defaults = {"prefill_length": 8, "context_length": 64}
        compile_checkpoint(CompileOptions(checkpoint=checkpoint, output=output, **{**defaults, **options}))
        return output

    return make
