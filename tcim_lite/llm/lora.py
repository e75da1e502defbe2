"""Inputs that have what a LoRA adds to weights. All graphs of a model read the same memory; zeros add nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

    def add_values(self, name: str, values: Mapping[str, np.ndarray]) -> None:
        """Takes the inputs of an adapter, as `fitted` returns them for all graphs of the model; another of that name
        is replaced.
        """
        self.remove(name)
        self._known[name] = {port: values.get(port, zeros) for port, zeros in self._known.get(None, {}).items()}

    def remove(self, name: str) -> None:
        """Forgets an adapter, if it is there."""
        self._known.pop(name, None)
        if self._active == [name]:
            self._active = []

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


def fitted(
    name: str, values: Mapping[str, np.ndarray], ports: Mapping[str, tuple[tuple[int, ...], str]]
) -> dict[str, np.ndarray]:
    """The inputs of an adapter in the shapes and dtypes of graphs that may take a larger rank, and more Linears.

    A Linear that the adapter leaves as it is has zeros, and a smaller rank has zeros behind it: they add nothing.

    Args:
        name: Of the adapter, for messages.
        values: By the names of inputs, `.._down` [1, K, r] and `.._up` [1, r, N].
        ports: Shapes and dtypes of all such inputs of the graphs.

    Raises:
        ValueError: The graphs do not take it; the message says which input, and what to compile.
    """
    if odd := sorted(values.keys() - ports.keys()):
        raise ValueError(
            f"adapter {name!r} has {odd[0]}, a Linear that the graphs take nothing for; compile the package with an "
            "adapter that has all of its target_modules (compile --lora)"
        )
    for port in values:
        other = f"{port[:-3]}_down" if port.endswith("_up") else f"{port[:-5]}_up"
        if other not in values:
            raise ValueError(f"adapter {name!r} has {port}, but not {other}; compile the adapter again")
    made = {}
    for port, (shape, dtype) in ports.items():
        given = values.get(port)
        made[port] = np.zeros(shape, dtype) if given is None else _fitted_input(name, port, given, shape, dtype)
    return made


def _fitted_input(name: str, port: str, given: np.ndarray, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """One input of an adapter, behind whose rank zeros follow; raises as `fitted`."""
    axis = 2 if port.endswith("_down") else 1  # of the rank
    if given.ndim != 3 or np.delete(given.shape, axis).tolist() != np.delete(shape, axis).tolist():
        raise ValueError(
            f"adapter {name!r}: {port} has {list(given.shape)}, the graphs take {list(shape)}; it is for another model"
        )
    if (rank := given.shape[axis]) > shape[axis]:
        raise ValueError(
            f"adapter {name!r}: {port} has rank {rank}, the graphs take {shape[axis]}; compile the package with an "
            "adapter of the largest rank (compile --lora)"
        )
    with np.errstate(over="ignore"):
        cast = given.astype(dtype)
    if not np.isfinite(cast).all():
        raise ValueError(f"adapter {name!r}: {port} has numbers beyond {dtype}, the dtype of the graphs")
    whole: np.ndarray = np.zeros(shape, dtype)
    whole[(slice(None),) * axis + (slice(rank),)] = cast
    return whole


def read_inputs(name: str, folder: str | PathLike[str]) -> dict[str, np.ndarray]:
    """What `compile --lora` wrote into a folder, by the names of inputs.

    Raises:
        ValueError: A file that cannot be read, or none.
    """
    paths = sorted(Path(folder).glob("*.npy"))
    if not paths:
        raise ValueError(
            f"adapter {name!r}: {folder} has no adapter_config.json and no .npy; name a folder of PEFT, or one that "
            "`compile --lora` wrote"
        )
    return {path.stem: _load(name, path) for path in paths}


def _load(name: str, path: Path) -> np.ndarray:
    try:
        values: np.ndarray = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"adapter {name!r}: {path} cannot be read: {error}; compile the adapter again") from None
    return values


def _read(name: str, path: Path, like: np.ndarray) -> np.ndarray:
    values = _load(name, path)
    if values.shape != like.shape or values.dtype != like.dtype:
        raise ValueError(
            f"adapter {name!r}: {path} has {list(values.shape)} {values.dtype}, the graph takes {list(like.shape)} "
            f"{like.dtype}; compile both adapters, of one rank, with the same --quant"
        )
    return values
