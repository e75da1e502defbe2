"""A folder as engines of compiled cases describe it: `config.json` names the compiled parts, and how many devices.

    {"case_dir": "parts", "param_dir": "parts", "tensor_parallel": {"use_tp": true, "parallel_size": 2}, ...}

Without these keys the folder is the package, and its graphs say how many devices they are for.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Case:
    """What `config.json` says.

    Attributes:
        folder: Of the compiled parts, as `Package.open` takes it.
        parallel_size: Devices that one model runs on; None where nothing is said of it.
        config: The file.
    """

    folder: Path
    parallel_size: int | None
    config: Path

    @classmethod
    def read(cls, folder: str | PathLike[str]) -> Case:
        """Reads `config.json` of a folder; relative paths in it start at the folder.

        Raises:
            ValueError: The keys contradict each other, or have values of another kind.
            FileNotFoundError: The folder of the parts is not there.
        """
        path = Path(folder) / "config.json"
        try:
            said = json.loads(path.read_bytes())
        except FileNotFoundError:
            return cls(Path(folder), None, path)
        except ValueError as error:
            raise ValueError(f"{path}: is not JSON: {error}") from None
        if not isinstance(said, dict):
            raise ValueError(f"{path}: expected an object, found {type(said).__name__}")
        return cls(_parts(path, said), _parallel_size(path, said.get("tensor_parallel")), path)

    def check(self, compiled: Collection[int], flag: int = 1, devices: object = None) -> None:
        """Compares `parallel_size`, where it is said, with what else names a number of devices.

        Args:
            compiled: Numbers of devices that the package has graphs for.
            flag: `--tensor-parallel-size`; 1 is its default and says nothing.
            devices: Of `--additional-config`: a list of ids, or lists by the number of a replica.

        Raises:
            ValueError: They differ; the message has both numbers.
        """
        size = self.parallel_size
        if size is None:
            return
        if flag not in (1, size):
            raise ValueError(
                f"tensor_parallel_size={flag}, but {self.config} says parallel_size={size}; leave the flag out, or "
                f"compile with --ndevice {flag}"
            )
        if size not in compiled:
            has = " or ".join(map(str, sorted(compiled)))
            raise ValueError(
                f"{self.config} says parallel_size={size}, the package has graphs for {has}; write that, or compile "
                f"with --ndevice {size}"
            )
        for ids in _lists(devices):
            if len(ids) != size:
                raise ValueError(
                    f"--additional-config names {len(ids)} devices, {ids}, but {self.config} says "
                    f"parallel_size={size}; name {size}"
                )


def _lists(devices: object) -> list[list[Any]]:
    """The lists of ids in `devices`, of which there is one for each replica; what is no list is for others to judge."""
    if isinstance(devices, Mapping):
        devices = list(devices.values())
    if not isinstance(devices, list):
        return []
    inner = [each for each in devices if isinstance(each, list)]
    return inner or [devices]


def _parts(path: Path, said: dict[str, Any]) -> Path:
    names = {key: said[key] for key in ("case_dir", "param_dir") if said.get(key) is not None}
    for key, name in names.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"{path}: {key} is {name!r}, expected the folder of the compiled parts")
    folders = {path.parent / name for name in names.values()}
    if len(folders) > 1:
        raise ValueError(f"{path}: {names}; graphs and weights of a package lie in one folder, so name the same")
    folder = folders.pop() if folders else path.parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{path}: {next(iter(names))} names {folder}, which is no folder")
    return folder


def _parallel_size(path: Path, block: object) -> int | None:
    if block is None:
        return None
    if not isinstance(block, dict):
        raise ValueError(f"{path}: tensor_parallel is {block!r}, expected an object with use_tp and parallel_size")
    use, size = block.get("use_tp", True), block.get("parallel_size", 1)
    if not isinstance(use, bool):
        raise ValueError(f"{path}: tensor_parallel.use_tp is {use!r}, expected true or false")
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"{path}: tensor_parallel.parallel_size is {size!r}, expected 1 or more devices")
    if not use and size > 1:
        raise ValueError(f"{path}: use_tp is false, but parallel_size={size}; set use_tp, or parallel_size to 1")
    return size
