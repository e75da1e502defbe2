"""A random checkpoint: config.json, model.safetensors in bf16. Only the sizes are those of the model.

Every engine's files are made from it. Numbers come from one block of 16 M, so that the largest takes seconds; each
tensor begins somewhere else in it, since OpenVINO stores equal tensors once.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .shapes import config_of, head_dim_of

_DRAWN = 1 << 24


def tensors(shape: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of all tensors."""
    fields = config_of(shape)
    hidden, inner, heads = fields["hidden_size"], fields["intermediate_size"], fields["num_attention_heads"]
    head_dim, kv_heads, vocab = head_dim_of(fields), fields["num_key_value_heads"], fields["vocab_size"]
    yield "model.embed_tokens.weight", (vocab, hidden)
    for layer in range(fields["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", (hidden,)
        yield f"{prefix}.self_attn.q_proj.weight", (heads * head_dim, hidden)
        for name in "kv":
            yield f"{prefix}.self_attn.{name}_proj.weight", (kv_heads * head_dim, hidden)
        for name, rows in {"q": heads, "k": kv_heads, "v": kv_heads}.items():
            if fields["model_type"] == "qwen2":
                yield f"{prefix}.self_attn.{name}_proj.bias", (rows * head_dim,)
        yield f"{prefix}.self_attn.o_proj.weight", (hidden, heads * head_dim)
        for name in "qk":
            if fields["model_type"] in ("qwen3", "qwen3_moe"):
                yield f"{prefix}.self_attn.{name}_norm.weight", (head_dim,)
        yield f"{prefix}.post_attention_layernorm.weight", (hidden,)
        experts = fields.get("num_experts", 0)
        if experts:
            yield f"{prefix}.mlp.gate.weight", (experts, hidden)
            inner = fields["moe_intermediate_size"]
        for name, dims in {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}.items():
            for expert in [f"experts.{number}." for number in range(experts)] or [""]:
                yield f"{prefix}.mlp.{expert}{name}_proj.weight", dims
    yield "model.norm.weight", (hidden,)
    if not fields["tie_word_embeddings"]:
        yield "lm_head.weight", (vocab, hidden)


def write_checkpoint(folder: Path, shape: str, weights: bool = True) -> None:
    """Writes the checkpoint; `config.json` comes last, so a folder that has it is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    if weights:
        _write_tensors(folder / "model.safetensors", shape)
    (folder / "config.json").write_text(json.dumps(config_of(shape) | {"torch_dtype": "bfloat16"}, indent=1))


def _write_tensors(path: Path, shape: str) -> None:
    header, offset = {}, 0
    for name, dims in tensors(shape):
        end = offset + 2 * int(np.prod(dims))
        header[name] = {"dtype": "BF16", "shape": dims, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 64)
    generator = np.random.default_rng(0)
    drawn = _bf16(generator.standard_normal(_DRAWN, np.float32) * np.float32(0.02))
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, dims in tensors(shape):
            count = int(np.prod(dims))
            if len(dims) == 1:
                file.write(_bf16(np.ones(count, np.float32)))
                continue
            start = int(generator.integers(_DRAWN))
            while count:
                piece = drawn[start : start + count]
                file.write(piece)
                count -= len(piece)
                start = 0


def read_tensors(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Names and mapped contents, uint16 that hold bf16."""
    path = folder / "model.safetensors"
    with path.open("rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
    data = np.memmap(path, np.uint8, "r", offset=8 + length)
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield name, data[begin:end].view(np.uint16).reshape(entry["shape"])


def _bf16(values: np.ndarray) -> np.ndarray:
    return (values.view(np.uint32) >> 16).astype(np.uint16)
