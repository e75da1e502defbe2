"""Where compilers of speech models find the folder and the numbers that they are asked for."""

from __future__ import annotations

from pathlib import Path

from ..common.checkpoint import Checkpoint
from ..common.weight_spec import CheckpointTensors, RandomTensors, TensorSource
from ..compiler.options import CompileOptions


def folder_of(checkpoint: Path) -> Path:
    """Returns the folder of a checkpoint that may be named by its config.json."""
    return checkpoint.parent if checkpoint.name == "config.json" else checkpoint


def tensors_of(options: CompileOptions) -> TensorSource:
    """Returns where the numbers of the weights come from."""
    return RandomTensors(options.seed) if options.random_weights else CheckpointTensors(Checkpoint(options.checkpoint))
