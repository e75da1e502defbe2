"""The `.hmw` of a package."""

from __future__ import annotations

import itertools
import math
import mmap
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import Sibling, WeightEntry, WeightsWriter

from ..blocks import DeltaNet, KeyDeltaNet, altup, sparse_mlp
from ..blocks.attention import attention_blocks
from ..blocks.positions import sinusoids
from ..blocks.unit_norms import unit_norms
from ..common.progress import Progress
from ..common.rope import Rope, grown, query_growth, unturned
from ..model_config import ModelConfig
from ..weights.pack_stream import row_chunks, to_fp16
from ..weights.packed_rows import packed_rows
from ..weights.packing import BLOCK
from ..weights.roles import (
    HEAD_NUMBERS,
    LOCAL_COS,
    LOCAL_SIN,
    LOGIT_CAP,
    ONE,
    POSITION_ROWS,
    POSITIONS,
    QUERY_COS,
    QUERY_SIN,
    ROPE_COLUMNS,
    ROPE_COS,
    ROPE_SIN,
    SPEAKER_UNIT,
    UNIT_KEYS,
    ones,
)
from ..weights.spec import LinearSpec, TensorSource, VectorSpec
from .prepare import PreparedModel, warn


def write_weights(
    folder: Path, model: PreparedModel, workers: ThreadPoolExecutor, bar: Progress
) -> tuple[list[WeightEntry], Sibling]:
    """Writes the `.hmw`; returns its weights in the order of use, and how a `.hmm` names it."""
    file = model.weights_file
    config, dtype = model.config, model.profile.tensor_dtype
    saturated: list[int] = []
    with WeightsWriter(folder / file) as writer:
        entries = [
            writer.add(name, dtype, "dense", part.shape, part.astype(dtype)) for name, part in _dense_constants(model)
        ]
        if config.axes:
            columns = np.array([axis * len(config.axes) + j for j, axis in enumerate(config.axes)], np.int32)
            entries.append(writer.add(ROPE_COLUMNS, "int32", "dense", columns.shape, columns))
        if config.positions is not None:
            rows = np.arange(config.first_position, config.first_position + model.options.context, dtype=np.int32)
            entries.append(writer.add(POSITION_ROWS, "int32", "dense", rows.shape, rows))
        blocks = (block for layer in range(config.num_layers) for block in config.blocks(layer))
        if (net := next((block for block in blocks if isinstance(block, DeltaNet | KeyDeltaNet)), None)) is not None:
            unit = np.full(net.keys, 1 / np.sqrt(net.keys), np.float32)
            entries.append(writer.add(UNIT_KEYS, "float32", "dense", unit.shape, unit))
        for count in sorted(unit_norms(config)):
            entries.append(writer.add(ones(count), "float32", "dense", (count,), np.ones(count, np.float32)))
        if (width := config.speaker_size) is not None:
            unit = np.full(width, 1 / np.sqrt(width), np.float32)
            entries.append(writer.add(SPEAKER_UNIT, "float32", "dense", unit.shape, unit))
        if config.heads > 1 and config.family.contract.head_number is not None:
            numbers = np.eye(config.heads, dtype=dtype)
            entries.append(writer.add(HEAD_NUMBERS, dtype, "dense", numbers.shape, numbers))
        for spec in model.weights:
            if isinstance(spec, VectorSpec):
                entries += _add_vector(writer, spec, model.tensors.vector(spec), model)
            else:
                chunks = _counted(model.tensors.packed(spec, workers, saturated.append), spec, bar)
                entries += _add_linear(writer, spec, chunks, model, folder)
    if saturated:
        warn_saturated(sum(saturated), "of the weights")
    assert writer.id is not None
    return entries, Sibling(file=file, id=writer.id)


def _dense_constants(model: PreparedModel) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """What is computed, and stored in the dtype of the graphs' tensors."""
    config = model.config
    yield from rope_tables(config, model.options.context)
    if config.source_size is not None or config.condition_size is not None:
        yield ONE, np.ones((1, 1, 1), np.float32)
    for name, number in (*altup.constants(config), *sparse_mlp.constants(config)):
        yield name, np.array([number], np.float32)
    if config.sinusoids:
        rows = config.first_position + model.options.context
        yield POSITIONS.name, sinusoids(rows, config.hidden_size)
    if config.logit_cap is not None:
        yield LOGIT_CAP, np.array([config.logit_cap], np.float32)


def rope_tables(config: ModelConfig, context: int) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Cosines and sines of all positions, of each RoPE that the model has."""
    ropes = [(ROPE_COS, ROPE_SIN, config.rotary_dim, config.rope_theta, config.rope_scaling)]
    if (local := config.local_rope) is not None:
        ropes.append((LOCAL_COS, LOCAL_SIN, local.head_dim, local.theta, local.scaling))
    for cos, sin, head_dim, theta, scaling in ropes:
        most = config.max_position_embeddings
        rope = Rope(head_dim=head_dim, theta=theta, scaling=scaling, max_position_embeddings=most)
        table = rope.table(context)
        yield cos, table.cos
        yield sin, -table.sin if config.turns_back else table.sin
        if cos == ROPE_COS and (growing := [block for block in attention_blocks(config) if block.grows]):
            turned = growing[0].rotated
            larger = grown(table, scaling) if turned else unturned(head_dim, query_growth(config.flags, context))
            yield QUERY_COS, larger.cos
            yield QUERY_SIN, larger.sin


def write_encoder_weights(
    path: Path,
    specs: Sequence[LinearSpec | VectorSpec],
    constants: Mapping[str, NDArray[Any]],
    tensors: TensorSource,
    dtype: str,
    workers: ThreadPoolExecutor,
    bar: Progress,
    what: str = "of the weights",
) -> tuple[list[WeightEntry], Sibling]:
    """Writes the `.hmw` of graphs that are not those of a language model; returns as `write_weights`.

    Args:
        path: Of the file.
        specs: Its weights in the order of use; those of the format `dense` are stored in `dtype`.
        constants: Computed tensors, which come first, in the dtypes they have.
        tensors: Where the numbers come from.
        dtype: Of the graphs' tensors, float16 or float32.
        workers: That pack.
        bar: Is told of the elements of Linears.
        what: Whose values a warning of saturation is about.
    """
    saturated: list[int] = []
    with WeightsWriter(path) as writer:
        entries = [writer.add(name, str(part.dtype), "dense", part.shape, part) for name, part in constants.items()]
        for spec in specs:
            if isinstance(spec, VectorSpec):
                vector, kind = tensors.vector(spec), spec.role.dtype(dtype)
                if spec.role.kind in ("least", "most"):  # one beyond all numbers keeps nothing
                    vector = np.clip(vector, np.finfo(kind).min, np.finfo(kind).max)
                entries.append(writer.add(spec.name, kind, "dense", spec.shape, _narrowed(vector, kind, saturated)))
            elif spec.format == "dense":
                matrix = tensors.matrix(spec.tensors[0], spec.tensor_shapes[0])
                rows = (_narrowed(matrix.read(*part), dtype, saturated) for part in row_chunks(matrix.shape))
                entries.append(writer.add(spec.name, dtype, "dense", spec.shape, rows))
                bar.advance(math.prod(spec.shape))
            else:
                chunks = _counted(tensors.packed(spec, workers, saturated.append), spec, bar)
                entries.append(writer.add(spec.name, spec.dtype, spec.format, spec.shape, chunks))
    if sum(saturated):
        warn_saturated(sum(saturated), what)
    assert writer.id is not None
    return entries, Sibling(file=path.name, id=writer.id)


def _narrowed(rows: NDArray[np.float32], dtype: str, saturated: list[int]) -> NDArray[Any]:
    if dtype == "float32":
        return rows
    half, count = to_fp16(rows)
    saturated.append(count)
    return half


def warn_saturated(count: int, what: str) -> None:
    """Warns that values did not fit fp16."""
    warn(f"{count} values {what} are beyond the fp16 range and were clamped to +-65504")


def _add_vector(
    writer: WeightsWriter, spec: VectorSpec, vector: NDArray[np.float32], model: PreparedModel
) -> list[WeightEntry]:
    """Adds the whole vector if a graph uses it, and its parts if it is cut."""
    cut = [(shard, rows) for shard in model.shards if (rows := shard.rows(spec.role, spec.sections)) is not None]
    vectors = {spec.name: vector} if model.uses_whole_weights or not cut else {}
    for shard, rows in cut:
        name = shard.weight_name(spec.role, spec.layer)
        vectors[name] = np.concatenate([vector[..., part.start : part.stop] for part in rows], axis=-1)
    dtype = spec.role.dtype(model.profile.tensor_dtype)
    return [writer.add(name, dtype, "dense", part.shape, part.astype(dtype)) for name, part in vectors.items()]


def _add_linear(
    writer: WeightsWriter, spec: LinearSpec, chunks: Iterator[NDArray[np.uint8]], model: PreparedModel, folder: Path
) -> list[WeightEntry]:
    """Adds the whole weight if a graph uses it, and its parts."""
    if not model.shards:
        return [writer.add(spec.name, spec.dtype, spec.format, spec.shape, chunks)]
    # Parts are cut from the packed whole, which is on disk meanwhile: one quantisation, and no weight in memory.
    with tempfile.TemporaryFile(dir=folder) as spool:
        for chunk in chunks:
            spool.write(chunk.data)
        spool.flush()
        packed = np.frombuffer(mmap.mmap(spool.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    entries = []
    if model.uses_whole_weights or spec.role.cut is None:
        entries.append(writer.add(spec.name, spec.dtype, spec.format, spec.shape, packed))
    for shard in model.shards:
        if spec.role.cut == "matrices":
            own = shard.even(spec.shape[0])
            part = packed.reshape(spec.shape[0], -1)[own.start : own.stop]
            name, shape = shard.weight_name(spec.role, spec.layer), (len(own), *spec.shape[1:])
            entries.append(writer.add(name, spec.dtype, spec.format, shape, part))
            continue
        if (rows := shard.rows(spec.role, spec.sections)) is None:
            continue
        *experts, outputs, inputs = spec.shape
        parts = (
            packed_rows(expert, spec.format, (outputs, inputs), rows)
            for expert in packed.reshape(math.prod(experts), -1)
        )
        name, shape = shard.weight_name(spec.role, spec.layer), (*experts, sum(map(len, rows)), inputs)
        entries.append(writer.add(name, spec.dtype, spec.format, shape, itertools.chain.from_iterable(parts)))
    return entries


def _counted(chunks: Iterator[NDArray[np.uint8]], spec: LinearSpec, bar: Progress) -> Iterator[NDArray[np.uint8]]:
    """Tells the progress bar of each chunk."""
    for chunk in chunks:
        yield chunk
        bar.advance(len(chunk) * BLOCK * spec.shape[-1])
