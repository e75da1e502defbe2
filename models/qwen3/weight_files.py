"""The `.hmw` of a package."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import Sibling, WeightEntry, WeightsWriter

from ..common.packing import BLOCK
from ..common.progress import Progress
from ..common.rope import rope_table
from ..common.weight_spec import LinearSpec, VectorSpec
from .prepare import PreparedModel, warn
from .weights import ROPE_COS, ROPE_SIN


def write_weights(
    folder: Path, model: PreparedModel, workers: ThreadPoolExecutor, bar: Progress
) -> tuple[list[WeightEntry], Sibling]:
    """Writes `<name>.hmw`; returns its weights in the order of use, and how a `.hmm` names it."""
    file = f"{model.options.name}.hmw"
    config, dtype = model.config, model.profile.tensor_dtype
    saturated: list[int] = []
    rope = rope_table(
        head_dim=config.head_dim,
        theta=config.rope_theta,
        scaling=config.rope_scaling,
        max_position_embeddings=config.max_position_embeddings,
        context_length=model.options.context_length,
    )
    with WeightsWriter(folder / file) as writer:
        entries = [
            writer.add(name, dtype, "dense", part.shape, part.astype(dtype))
            for name, part in ((ROPE_COS, rope.cos), (ROPE_SIN, rope.sin))
        ]
        for spec in model.weights:
            if isinstance(spec, VectorSpec):
                entries.append(writer.add(spec.name, "float32", "dense", spec.shape, model.tensors.vector(spec)))
            else:
                chunks = _counted(model.tensors.packed(spec, workers, saturated.append), spec, bar)
                entries.append(writer.add(spec.name, spec.dtype, spec.format, spec.shape, chunks))
    if saturated:
        warn_saturated(sum(saturated), "of the weights")
    assert writer.id is not None
    return entries, Sibling(file=file, id=writer.id)


def warn_saturated(count: int, what: str) -> None:
    """Warns that values did not fit fp16."""
    warn(f"{count} values {what} are beyond the fp16 range and were clamped to +-65504")


def _counted(chunks: Iterator[NDArray[np.uint8]], spec: LinearSpec, bar: Progress) -> Iterator[NDArray[np.uint8]]:
    for chunk in chunks:
        yield chunk
        bar.advance(len(chunk) * BLOCK * spec.shape[1])
