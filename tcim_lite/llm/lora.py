"""Inputs that have what a LoRA adds to weights. All graphs of a model read the same memory; zeros add nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from .ports import is_lora


def lora_names(module: Any) -> list[str]:
    """Names of these inputs, in input order."""
    names = (module.get_input_name(i) for i in range(module.get_num_inputs()))
    return [name for name in names if is_lora(name)]


def share_lora(owner: Any, borrowers: Iterable[Any] = ()) -> None:
    """Zeros these inputs of `owner`, and binds those of the others to them."""
    for name in lora_names(owner):
        info = owner.get_input_info(name)
        owner.set_input(name, np.zeros(info.shape, info.dtype))
        for borrower in borrowers:
            borrower.set_dev_input(name, owner.get_dev_input(name))


class Adapters:
    """The adapters of a model, of which its graphs have one at a time, or none.

    Args:
        owners: A module of each stage of the model, whose inputs the others are bound to (`share_lora`).
    """

    def __init__(self, owners: Sequence[Any]):
        self._ports = [(owner, lora_names(owner)) for owner in owners]
        self._known: dict[str | None, dict[str, np.ndarray]] = {}
        if any(names for _, names in self._ports):
            infos = [(name, owner.get_input_info(name)) for owner, names in self._ports for name in names]
            self._known[None] = {name: np.zeros(info.shape, info.dtype) for name, info in infos}
        self._active: list[str | None] = [None]  # empty: a change has failed half-way

    @property
    def names(self) -> list[str]:
        """Those that were added, in order."""
        return [name for name in self._known if name is not None]

    def add(self, name: str, folder: str | PathLike[str]) -> None:
        """Reads what `tcim-lite compile --lora` wrote for an adapter: an .npy for each input.

        Raises:
            ValueError: The graphs take no LoRA, or the folder is not that of an adapter with the ranks and Linears of
                the one that they were compiled with.
        """
        folder = Path(folder)
        if not self._known:
            raise ValueError(f"adapter {name!r}: the graphs take no LoRA; compile the package with --lora ADAPTER")
        if not folder.is_dir():
            raise ValueError(f"adapter {name!r}: {folder} is no folder; give one that `compile --lora` wrote")
        if (folder / "adapter_config.json").is_file():
            raise ValueError(
                f"adapter {name!r}: {folder} is a PEFT adapter; compile it into the package, `tcim-lite compile "
                f"CHECKPOINT -o PACKAGE --lora {folder}`, and give NAME_{folder.name}_prefill_lora_input there"
            )
        wanted, there = self._known[None], {path.stem: path for path in folder.glob("*.npy")}
        if odd := sorted(wanted.keys() ^ there.keys()):
            what = "lacks" if odd[0] in wanted else "has"
            raise ValueError(
                f"adapter {name!r}: {folder} {what} {odd[0]}.npy, so it changes other Linears than the package takes; "
                "compile both from one checkpoint, with adapters of the same target_modules"
            )
        self._known[name] = {port: _read(name, there[port], like) for port, like in wanted.items()}

    def activate(self, name: str | None) -> None:
        """Has all graphs run with an adapter, or None, the base model, from their next run on.

        Raises:
            ValueError: It was not added.
        """
        if self._active == [name]:
            return
        if name not in self._known:
            raise ValueError(f"adapter {name!r} is not loaded; loaded are {', '.join(self.names) or 'none'}")
        self._active = []
        values = self._known[name]
        for owner, ports in self._ports:
            for port in ports:
                owner.set_input(port, values[port])
        self._active = [name]


def _read(name: str, path: Path, like: np.ndarray) -> np.ndarray:
    try:
        values: np.ndarray = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"adapter {name!r}: {path} cannot be read: {error}; compile the adapter again") from None
    if values.shape != like.shape or values.dtype != like.dtype:
        raise ValueError(
            f"adapter {name!r}: {path} has {list(values.shape)} {values.dtype}, the graph takes {list(like.shape)} "
            f"{like.dtype}; compile both adapters, of one rank, with the same --quant"
        )
    return values
