"""What is compiled: a Hugging Face folder or a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checkpoints.bare_names import BareTensors
from ..checkpoints.checkpoint import Checkpoint, TensorStore, config_of
from ..checkpoints.columns_first import ColumnsFirst
from ..checkpoints.four_bit import FourBitCheckpoint
from ..checkpoints.gguf import GgufCheckpoint, is_gguf
from ..checkpoints.language_tensors import LanguageTensors
from ..checkpoints.packed_experts import PackedExperts
from ..checkpoints.quantized.table import decoded
from ..checkpoints.quarters import Quarters
from ..checkpoints.weight_norm import NormedTensors
from ..common.package import host_files_in
from ..model_config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model to compile.

    Attributes:
        path: Its folder or file.
        config: As config.json has it.
        tensors: Its tensors; None where weights are drawn.
        host_files: Tokenizer, chat template and configs by name: to copy, or what to write.
    """

    path: Path
    config: Mapping[str, Any]
    tensors: TensorStore | None
    host_files: Mapping[str, Path | bytes]


def folder_of(checkpoint: Path) -> Path:
    """Returns the folder of a checkpoint that may be named by its config.json."""
    return checkpoint.parent if checkpoint.name == "config.json" else checkpoint


def open_source(path: Path, read: Callable[[Mapping[str, Any]], ModelConfig], *, random_weights: bool) -> Source:
    """Opens a folder or a file; `read` is what reads the config, and `random_weights` needs no tensors.

    Raises:
        CheckpointError: It is neither, or cannot be read.
        CompileError: An extra is not installed, or config.json is not supported.
    """
    if is_gguf(path):
        gguf = GgufCheckpoint(path)
        weights = None if random_weights else gguf
        return Source(path=path, config=gguf.config, tensors=weights, host_files=gguf.host_files())
    folder = path.parent if random_weights and path.name == "config.json" else path
    config = config_of(folder)
    tensors: TensorStore | None = None
    if not random_weights:
        checkpoint = Checkpoint(folder)
        if LanguageTensors.fits(checkpoint):
            checkpoint = LanguageTensors(folder)
        elif BareTensors.fits(checkpoint):
            checkpoint = BareTensors(folder)
        tensors = store = decoded(checkpoint, config)
        if isinstance(store, FourBitCheckpoint):
            pass  # which has no experts in one tensor
        elif PackedExperts.fits(store):
            model = read(config)
            count, inner = (0, 0) if model.experts is None else (model.experts.count, model.experts.inner)
            tensors = PackedExperts(store, count, model.family.packed_experts, inner)
        elif NormedTensors.fits(store):
            tensors = NormedTensors(store)
        elif ColumnsFirst.fits(store) and store is checkpoint and read(config).family.columns_first:
            tensors = ColumnsFirst(store)
        elif Quarters.fits(store):
            tensors = Quarters(store)
    return Source(path=folder, config=config, tensors=tensors, host_files=host_files_in(folder))
