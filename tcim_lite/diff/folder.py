"""A folder of tensors, named as the vendor names golden files.

dump.json                                      what was run, and the tensors of each step in the order of execution
step_0/hmquant_<graph>_<tensor>_input.npy      <graph> is the name of the .hmm
step_0/hmquant_<graph>_<tensor>_output.npy
step_0/hmquant_<graph>_with_act/<tensor>.npy   values inside the graph, and the rows that the step writes to caches
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from ..errors import ArgumentError, HmmFormatError

MANIFEST = "dump.json"
_FORMAT = 1
_MOST_MANIFEST_BYTES = 256 << 20
_KINDS = ("input", "state", "output", "value", "cache")

Array = np.ndarray[Any, np.dtype[Any]]


def golden_name(tensor: str) -> str:
    """The name of a tensor as part of a file name."""
    return tensor.replace(":", "_").replace("/", "_")


def check_names(tensors: Iterable[str]) -> None:
    """Raises ArgumentError where two tensors, whose files lie in one folder, have one name there."""
    known: dict[str, str] = {}
    for tensor in tensors:
        other = known.setdefault(golden_name(tensor), tensor)
        if other != tensor:
            raise ArgumentError(
                f"the tensors {other!r:.200} and {tensor!r:.200} have one golden name, {golden_name(tensor)!r:.200}; "
                "rename one in the model"
            )


@dataclass(frozen=True, slots=True)
class Step:
    """One run of one graph.

    Attributes:
        graph: The name of its file, without the suffix: the <name> of golden files.
        file: The `.hmm`.
        valid: Tokens in the cache before the run; 0 for a graph without a valid length.
        current: Tokens of the run; 0 for a graph without a current length.
        tensors: By name: the kind and the file, from the root of the folder. Kinds: "input"; "state", an input that the
            run updates, as it was before; "output"; "value", inside the graph; "cache", the rows that the run writes.
        altered: Inputs that hold other values after the run than they were given.
    """

    graph: str
    file: str
    valid: int = 0
    current: int = 0
    tensors: dict[str, tuple[str, str]] = field(default_factory=dict)
    altered: list[str] = field(default_factory=list)


class DumpWriter:
    """Writes a dump folder. As a context it removes what it wrote if an exception ends it.

    Args:
        folder: Made if it is not there. An earlier dump in it goes when the first step begins.
        source: What is run, for the reader of the manifest.

    Raises:
        ArgumentError: The folder is a file, or has steps that are of no whole dump, such as golden files.
        HmmFormatError: Its manifest is not one.
        OSError: It cannot be made. Later calls: it cannot be written, with the name of the file.
    """

    def __init__(self, folder: Path, source: dict[str, Any]) -> None:
        """Makes the folder."""
        self.folder, self._source, self.steps = folder, source, list[Step]()
        self._made = not folder.exists()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ArgumentError(f"cannot write to {folder}: there is a file or a broken link; give a folder") from None
        self._earlier = Dump.open(folder) if (folder / MANIFEST).exists() else None
        if self._earlier is None and (found := next(folder.glob("step_*"), None)) is not None:
            raise ArgumentError(
                f"{found}: is of no whole dump, and would be taken for a step of this one; remove it, or give another "
                "folder"
            )

    def __enter__(self) -> DumpWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return
        for index in range(len(self.steps)):
            shutil.rmtree(self.folder / f"step_{index}", ignore_errors=True)
        if self._made:
            with contextlib.suppress(OSError):  # not empty
                self.folder.rmdir()

    def add_step(self, graph: str, file: Path | str, valid: int = 0, current: int = 0) -> None:
        """Begins the next step."""
        if self._earlier is not None:
            self._earlier.remove()
            self._earlier = None
        self.steps.append(Step(graph, str(file), valid, current))

    def add(self, kind: str, name: str, array: Array) -> None:
        """Writes a tensor of the step."""
        step = self.steps[-1]
        prefix = f"hmquant_{golden_name(step.graph)}"
        inside = kind in ("value", "cache")
        end = "output" if kind == "output" else "input"
        file = f"{prefix}_with_act/{golden_name(name)}.npy" if inside else f"{prefix}_{golden_name(name)}_{end}.npy"
        path = self.folder / f"step_{len(self.steps) - 1}" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            np.save(path, array)
        except OSError as error:
            if error.filename is not None:
                raise
            # numpy counts the bytes that were written, and says neither where nor why there were no more.
            number = error.errno or errno.ENOSPC
            raise OSError(number, os.strerror(number), str(path)) from None
        step.tensors[name] = (kind, str(path.relative_to(self.folder)))

    def close(self, **facts: Any) -> None:
        """Writes the manifest."""
        content = {"format": _FORMAT, "source": self._source | facts, "steps": [asdict(step) for step in self.steps]}
        (self.folder / MANIFEST).write_text(json.dumps(content, indent=1), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Dump:
    """A dump folder.

    Attributes:
        folder: Where it is.
        source: What was run.
        steps: In order.
    """

    folder: Path
    source: dict[str, Any]
    steps: list[Step]

    @classmethod
    def open(cls, folder: Path) -> Dump:
        """Reads the manifest.

        Raises:
            HmmFormatError: There is none, or it is not one that `tcim-lite dump` writes.
        """
        path = folder / MANIFEST
        try:
            if not path.is_file() or path.stat().st_size > _MOST_MANIFEST_BYTES:
                raise HmmFormatError(f"{folder}: has no {MANIFEST}; give a folder that `tcim-lite dump` wrote")
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != _FORMAT:
                raise HmmFormatError(f"{path}: format {content['format']}, expected {_FORMAT}; dump again")
            steps = [_step(step) for step in content["steps"]]
            return cls(folder, dict(content["source"]), steps)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            if isinstance(error, HmmFormatError):
                raise
            raise HmmFormatError(f"{path}: is not a manifest of `tcim-lite dump` ({error!r:.100})") from None

    def remove(self) -> None:
        """Deletes the files of the dump, and those of its folders that are empty then."""
        for step in self.steps:
            for _, file in step.tensors.values():
                (self.folder / file).unlink(missing_ok=True)
        (self.folder / MANIFEST).unlink()
        for path in (*self.folder.glob("step_*/*_with_act"), *self.folder.glob("step_*")):
            with contextlib.suppress(OSError):  # has files of others
                path.rmdir()

    def array(self, step: int, name: str) -> Array:
        """A tensor of a step.

        Raises:
            HmmFormatError: The file is missing or is no array.
        """
        path = self.folder / self.steps[step].tensors[name][1]
        try:
            return read_array(path)
        except (OSError, ValueError) as error:
            raise HmmFormatError(f"{path}: cannot be read ({error}); dump again") from None


def read_array(path: Path) -> Array:
    """The array of a `.npy` file that nobody vouches for.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no array of numbers.
    """
    if not path.is_file():  # opening a FIFO would wait
        raise ValueError("there is no such file, or it is no regular file")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, of headers that Python 2 might have written
        try:
            found = np.load(path, allow_pickle=False)
        except (EOFError, SyntaxError, TokenError, MemoryError, OverflowError) as error:
            raise ValueError(f"no .npy file: {error!r:.100}") from None
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "biuf":
        raise ValueError("no .npy file with one array of numbers")
    return found


def _step(found: dict[str, Any]) -> Step:
    tensors: dict[str, tuple[str, str]] = {}
    for name, (kind, file) in found["tensors"].items():
        parts = Path(file).parts
        if kind not in _KINDS or Path(file).is_absolute() or ".." in parts:
            raise ValueError(f"tensor {name!r:.100}: kind {kind!r:.20}, file {file!r:.100}")
        tensors[str(name)] = (kind, file)
    altered = found.get("altered", [])
    if not isinstance(altered, list) or not all(isinstance(name, str) for name in altered):
        raise ValueError(f"altered {altered!r:.100}")
    return Step(str(found["graph"]), str(found["file"]), int(found["valid"]), int(found["current"]), tensors, altered)
