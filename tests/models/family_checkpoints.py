"""Random checkpoints of every family from its record alone: config, tensors, a folder."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tcim_lite.models.families import FAMILIES, read_config
from tcim_lite.models.weights import roles

Tensors = dict[str, np.ndarray]


def family_config(family: str, **changes: Any) -> dict[str, Any]:
    """The family's tiny config, with the head_dim that is usually left out if its keys are the usual ones."""
    tiny = FAMILIES[family].tiny_config
    usual = {"hidden_size", "num_attention_heads"} <= set(tiny)
    head_dim = {"head_dim": tiny["hidden_size"] // tiny["num_attention_heads"]} if usual else {}
    return {**head_dim, **tiny, **changes}


def family_tensors(config: dict[str, Any], seed: int = 7) -> Tensors:
    """Every tensor that the record asks for, in fp16 values: norms and factors near 1, all else near 0."""
    return {name: tensor.copy() for name, tensor in _drawn(json.dumps(config), seed).items()}


@functools.cache
def _drawn(config: str, seed: int) -> Tensors:
    read, rng = read_config(json.loads(config)), np.random.default_rng(seed)
    tensors: Tensors = {}

    def add(
        role: roles.Role,
        layer: int | None,
        outputs: tuple[int, ...],
        inputs: int | None,
        expert: int | None = None,
        taps: int | None = None,
        sections: tuple[int, ...] = (),
    ) -> None:
        source = read.family.tensors[role]
        names = source.of(layer, expert)
        if source.transform in ("of_heads", "table"):  # of q and of k
            columns, outputs = outputs[0], sections[:2]
        if source.transform == "matrix":
            columns, outputs = outputs[0], (sections[0] * outputs[0],)
        if source.transform == "of_heads":
            each = zip(source.names, outputs, strict=True)
            heads = [(name, head) for name, rows in each for head in range(rows // columns)]
            names = tuple(name.format(layer=layer, expert=head) for name, head in heads)
            outputs = (columns,) * len(names)
        for name, rows in zip(names, outputs if len(names) > 1 else (sum(outputs),), strict=True):
            values = rng.standard_normal((rows, inputs) if inputs else (rows,)) * 0.1
            values += role.kind in ("norm", "factors")
            if taps is not None:
                values = rng.standard_normal((rows, 1, taps)) * 0.1
            values = values[None] if source.transform == "row" else values
            values = values[None, None, :, None] if source.transform == "spread" else values
            values = values.reshape(-1, columns) if source.transform in ("matrix", "table") else values
            tensors[name] = values.astype(np.float16)

    add(roles.EMBEDDING, None, (read.vocab_size,), read.hidden_size)
    for layer in range(read.num_layers):
        for block in read.blocks(layer):
            for weight in block.weights(read):
                if weight.whole is not None:  # of all heads
                    add(weight.role, layer, weight.whole[:1], weight.whole[1])
                    continue
                for expert in [None] if weight.experts is None else range(weight.experts):
                    add(weight.role, layer, weight.outputs, weight.inputs, expert, weight.taps, weight.sections)
    if read.positions is not None and not read.sinusoids:
        add(roles.POSITIONS, None, (read.hidden_size,), None, sections=(read.positions,))
    if read.norm_weight and read.final_norm:
        add(roles.FINAL_NORM, None, (read.hidden_size,), None)
    if read.norm_bias and read.final_norm:
        add(roles.NORM_BIASES[roles.FINAL_NORM], None, (read.hidden_size,), None)
    if read.head_bias:
        add(roles.HEAD_BIAS, None, (read.vocab_size,), None)
    if not read.tie_word_embeddings:
        add(roles.HEAD, None, (read.vocab_size,), read.hidden_size)
    return tensors


def write_family(folder: Path, config: dict[str, Any], dtype: Any, *, seed: int = 7) -> Path:
    """A folder with config.json and model.safetensors."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(
        {name: tensor.astype(dtype) for name, tensor in family_tensors(config, seed).items()},
        folder / "model.safetensors",
    )
    return folder
