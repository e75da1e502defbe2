"""Adapters of Hugging Face PEFT: `adapter_config.json` and two small matrices for each Linear that a LoRA changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import CheckpointError
from .checkpoint import Checkpoint, read_json

_CONFIG, _TENSORS = "adapter_config.json", "adapter_model.safetensors"
_TENSOR = re.compile(r"(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<side>[AB])(?:\.default)?\.weight")
# What would make it something else than y + scale * B (A x), with one scale and one rank.
_UNSUPPORTED = (
    "alora_invocation_tokens",
    "alpha_pattern",
    "arrow_config",
    "layer_replication",
    "lora_bias",
    "modules_to_save",
    "rank_pattern",
    "target_parameters",
    "use_bdlora",
    "use_dora",
    "use_qalora",
)
# Values of `init_lora_weights` with which PEFT changes the weights beside the LoRA as well.
_CHANGE_OTHERS = ("corda", "loftq", "lora_ga", "olora", "pissa")
_MOST_ALPHA, _MOST_RANK = 3.4e38, 1 << 24


@dataclass(frozen=True, slots=True)
class LowRank:
    """What a LoRA adds to a weight [N, K]: `up` [N, r] times `down` [r, K]; the scale is in `up`."""

    down: NDArray[np.float32]
    up: NDArray[np.float32]

    @property
    def rank(self) -> int:
        """r."""
        return len(self.down)

    @property
    def shape(self) -> tuple[int, int]:
        """[N, K]."""
        return len(self.up), self.down.shape[1]


class LoraAdapter:
    """An adapter folder, which is read whole.

    Attributes:
        folder: Where it is.
        changes: What it adds to the tensor `module.weight`, by module; modules are named as in the model that it was
            trained on.
    """

    def __init__(self, folder: Path) -> None:
        """Raises CheckpointError: no adapter, or one that is not a plain LoRA."""
        if not folder.is_dir():
            raise CheckpointError(f"--lora {folder} is no folder; expected a PEFT adapter, with {_CONFIG}")
        if not (folder / _CONFIG).is_file():
            raise CheckpointError(f"--lora {folder} has no {_CONFIG}; expected the folder of a PEFT adapter")
        self.folder = folder
        config = read_json(folder / _CONFIG)
        scale = _scale(config, folder / _CONFIG)
        found: dict[str, dict[str, str]] = {}
        tensors = _AdapterTensors(folder)
        for name in tensors.names():
            if (match := _TENSOR.fullmatch(name)) is None:
                raise CheckpointError(
                    f"{folder / _TENSORS} has a tensor {name!r}, expected MODULE.lora_A.weight and "
                    "MODULE.lora_B.weight; other changes of a model must be merged into its checkpoint"
                )
            found.setdefault(match["module"], {})[match["side"]] = name
        self.changes = dict(_changes(tensors, found, config["r"], scale))
        if not self.changes:
            raise CheckpointError(f"{folder / _TENSORS} changes no Linear; expected MODULE.lora_A.weight and so on")


class _AdapterTensors(Checkpoint):
    def _single(self) -> Path:
        path = self.folder / _TENSORS
        if not path.is_file():
            raise CheckpointError(f"{self.folder} has no {_TENSORS}; save the adapter with safe_serialization=True")
        return path


def _scale(config: Mapping[str, Any], path: Path) -> float:
    if config.get("peft_type") != "LORA":
        raise CheckpointError(f"{path} has peft_type {config.get('peft_type')!r}, expected 'LORA'")
    if used := [name for name in _UNSUPPORTED if config.get(name)]:
        raise CheckpointError(f"{path} sets {', '.join(used)}; only plain LoRA is compiled, y + alpha / r * B (A x)")
    if config.get("bias", "none") != "none":
        raise CheckpointError(f"{path} has bias {config['bias']!r}, expected 'none'")
    if str(start := config.get("init_lora_weights")).lower().startswith(_CHANGE_OTHERS):
        raise CheckpointError(
            f"{path} has init_lora_weights {start!r:.40}, with which PEFT changes the weights of the model too; save "
            "it as a plain LoRA (save_pretrained with path_initial_model_for_weight_conversion), or merge it into its "
            "checkpoint"
        )
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= _MOST_RANK:
        raise CheckpointError(f"{path} has r {rank!r:.80}, expected a whole number of at least 1")
    if not isinstance(alpha, (int, float)) or isinstance(alpha, bool) or not abs(alpha) < _MOST_ALPHA:
        raise CheckpointError(f"{path} has lora_alpha {alpha!r:.80}, expected a number")
    return float(alpha / (rank**0.5 if config.get("use_rslora") else rank))


def _changes(
    tensors: Checkpoint, found: Mapping[str, Mapping[str, str]], rank: int, scale: float
) -> Iterator[tuple[str, LowRank]]:
    for module, sides in found.items():
        if set(sides) != {"A", "B"}:
            raise CheckpointError(f"{tensors.folder / _TENSORS} has only one of lora_A and lora_B of {module!r}")
        down, up = tensors.shape(sides["A"]), tensors.shape(sides["B"])
        if len(down) != 2 or len(up) != 2 or down[0] != rank or up[1] != rank:
            raise CheckpointError(
                f"lora_A and lora_B of {module!r} in {tensors.folder / _TENSORS} have shapes {list(down)} and "
                f"{list(up)}, expected [{rank}, inputs] and [outputs, {rank}]"
            )
        yield module, LowRank(tensors.read(sides["A"]), tensors.read(sides["B"]) * np.float32(scale))
