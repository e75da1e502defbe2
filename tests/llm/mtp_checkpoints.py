"""Checkpoints of hybrid families with a layer for multi-token prediction."""

from __future__ import annotations

import pytest

safetensors = pytest.importorskip("safetensors.torch", reason="writes checkpoints")
torch = pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("transformers", reason="the oracle")
from hybrid_models import random_model, random_next

SIZES = {"prefill_length": 16, "context_length": 64}


def add_mtp(folder, name):
    """Writes the tensors of an MTP layer into a checkpoint; returns the layer: a model of one layer, and what joins."""
    shape = {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
    make = random_next if name == "qwen3_next" else (lambda folder, changes: random_model(folder, changes, name))
    torch.manual_seed(11)
    layer = make(folder.with_name("mtp"), shape)
    hidden = layer.config.hidden_size
    own = {
        "mtp.fc.weight": torch.randn(hidden, 2 * hidden) * 0.05,
        "mtp.pre_fc_norm_embedding.weight": torch.randn(hidden) * 0.3,
        "mtp.pre_fc_norm_hidden.weight": torch.randn(hidden) * 0.3,
    }
    path = folder / "model.safetensors"
    tensors = safetensors.load_file(path)
    head = tensors["lm_head.weight"]
    stored = safetensors.load_file(folder.with_name("mtp") / "model.safetensors")
    for key, tensor in stored.items():
        key = key.replace("model.language_model.", "model.")
        if key.startswith("model.") and "embed_tokens" not in key:
            own["mtp." + key.removeprefix("model.")] = tensor
    safetensors.save_file({**tensors, **own}, path)
    with torch.no_grad():
        layer.lm_head.weight.copy_(head)
    return layer, own


def checkpoint(folder, name="qwen3_5"):
    make = random_next if name == "qwen3_next" else (lambda folder, changes: random_model(folder, changes, name))
    model = make(folder / "hf", {})
    return model, *add_mtp(folder / "hf", name)
