"""Where compilers of speech models find the folder and the numbers that they are asked for, and what they leave."""

from __future__ import annotations

from collections.abc import Iterable, Set
from pathlib import Path

from ..common.checkpoint import Checkpoint
from ..common.weight_spec import CheckpointTensors, RandomTensors, TensorSource
from ..compiler.options import CompileOptions
from ..compiler.prepare import left_out, warn


def folder_of(checkpoint: Path) -> Path:
    """Returns the folder of a checkpoint that may be named by its config.json."""
    return checkpoint.parent if checkpoint.name == "config.json" else checkpoint


def tensors_of(options: CompileOptions) -> TensorSource:
    """Returns where the numbers of the weights come from."""
    return RandomTensors(options.seed) if options.random_weights else CheckpointTensors(Checkpoint(options.checkpoint))


def warn_unused(names: Iterable[str], placed: Set[str], elsewhere: tuple[str, ...] = ()) -> None:
    """Warns of tensors of a checkpoint that are in no graph; those that begin as `elsewhere` says are in networks."""
    if unused := [name for name in names if name not in placed and not name.startswith(elsewhere)]:
        warn(left_out(unused))
