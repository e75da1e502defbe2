"""What compilers of speech models are asked for: the folder, and options that they have."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import MISSING, fields
from pathlib import Path

from ..common.checkpoint import Checkpoint
from ..common.errors import CompileError
from ..common.weight_spec import CheckpointTensors, RandomTensors, TensorSource
from ..compiler.options import CompileOptions

COMMON_OPTIONS = frozenset(
    {"checkpoint", "output", "name", "quant", "head_quant", "activations", "random_weights", "seed", "self_contained"}
)


def folder_of(checkpoint: Path) -> Path:
    """Returns the folder of a checkpoint that may be named by its config.json."""
    return checkpoint.parent if checkpoint.name == "config.json" else checkpoint


def tensors_of(options: CompileOptions) -> TensorSource:
    """Returns where the numbers of the weights come from."""
    return RandomTensors(options.seed) if options.random_weights else CheckpointTensors(Checkpoint(options.checkpoint))


def check_options(options: CompileOptions, known: Set[str], graphs: str) -> None:
    """Refuses options that a model does not have.

    Args:
        options: As they were given.
        known: Names of those that it has.
        graphs: What the graphs of the model are.

    Raises:
        CompileError: Another option has a value that is not its default.
    """
    for field in fields(options):
        if field.name in known or field.default is MISSING or getattr(options, field.name) == field.default:
            continue
        flag = "--" + field.name.replace("_", "-") if field.name != "single_device" else "--no-single-device"
        raise CompileError(f"{flag}: the graphs of {graphs}; leave it out")
