"""Runs a program under the recording layer and strict mode, and reads what it did from the recordings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from .. import layers
from ..errors import ArgumentError
from ..replay import Recording, RecordingError
from .api import CPP, PYTHON
from .findings import Place, Risk, Use, risk

# Calls of recordings that have another name in the table.
_NAMES = {
    "Tensor.allocate": "Tensor", "Tensor.from_array": "Tensor", "Stream.create": "Stream", "Buffer.create": "Buffer",
    "Tensor.data": "Tensor::Data",
}  # fmt: skip
_MADE = {
    "Tensor.allocate": "A tensor is made", "Tensor.from_array": "A tensor is made",
    "Tensor.clone": "A tensor is copied",
    "Module.load": "A model is loaded", "Stream.create": "A stream is made",
}  # fmt: skip
_REPEATED = 4  # runs: what happens less often is no pattern
_MANY = 4096  # elements of an output that is worth not to copy
_STRICT = re.compile(r"\b(S-\d{3}): .*? At (\S.*?)\. Rule: ")


class Watched:
    """What a program did.

    Attributes:
        status: Its exit status.
        processes: How many of its processes used the runtime.
        calls: How many calls they made.
        uses: A use for each call and line.
        risks: Risky patterns, those of strict mode included.
    """

    def __init__(self, command: Sequence[str], *, all_to_stderr: bool = False) -> None:
        """Runs a command to its end; its output goes where this process's goes, or all of it to standard error.

        Raises:
            ArgumentError: It cannot be started.
        """
        self.uses: list[Use] = []
        self.risks: list[Risk] = []
        self.calls = 0
        with tempfile.TemporaryDirectory(prefix="port-check-") as folder:
            file = Path(folder) / "run.tcimrec"
            variables = {
                **os.environ,
                "TCIM_LITE_LAYERS": f"record:{file}",
                "TCIM_LITE_RECORD_DATA": "none",
                "TCIM_LITE_RECORD_SITES": "1",
                "TCIM_LITE_STRICT": "warn",
            }
            try:
                program = subprocess.Popen(
                    command, env=variables, stdout=sys.stderr.fileno() if all_to_stderr else None,
                    stderr=subprocess.PIPE, text=True, errors="replace",
                )  # fmt: skip
            except OSError as error:
                raise ArgumentError(f"{command[0]}: cannot be run ({error})") from None
            with program:
                assert program.stderr is not None
                self._read_strict(program.stderr)
            self.status = program.returncode
            recordings = sorted(Path(folder).iterdir())
            self.processes = len(recordings)
            for path in recordings:
                try:
                    recording = Recording(path)
                except RecordingError:  # a process that was killed in its first call
                    continue
                self.calls += sum("call" in record for record in recording.records)
                self.uses += _uses(recording.records)
                self.risks += _risks(recording.records)

    def _read_strict(self, stream: IO[str]) -> None:
        """Passes standard error on, but for findings of strict mode, which it keeps."""
        fixes = {kind.code: kind for kind in layers.catalogue()}
        for line in stream:
            found = _STRICT.search(line)
            if found is None or found[1] not in fixes:
                sys.stderr.write(line)
                continue
            kind = fixes[found[1]]
            self.risks.append(Risk(found[1], _place(found[2]), kind.title, kind.fix))


def _place(site: str) -> Place:
    file, separator, line = site.rpartition(":")
    return Place(_shown(file), int(line)) if separator and line.isdigit() else Place(site or "(a C++ caller)", 0)


def _shown(file: str) -> str:
    """A path from the current folder, where it is inside."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except ValueError:
        return file


def _site(record: dict[str, Any]) -> Place:
    site = record.get("site")
    return _place(site if isinstance(site, str) else "")


def _uses(records: list[dict[str, Any]]) -> Iterator[Use]:
    seen = set()
    for record in records:
        call = record.get("call")
        if not isinstance(call, str) or call == "Module.delete":
            continue
        name = _NAMES.get(call, call)
        entry = PYTHON.get(name) or CPP.get(name)
        place = _site(record)
        if entry is not None and (name, place) not in seen:
            seen.add((name, place))
            yield Use(entry, name, place)


def _risks(records: list[dict[str, Any]]) -> Iterator[Risk]:
    """Patterns over the calls of one process."""
    runs = 0
    fetched: dict[tuple[Any, Any, Any], int] = {}  # module, output, dtype: the run after which it was fetched
    outputs: dict[int, int] = {}  # memory of fetched outputs: elements
    seen: dict[tuple[str, str, Place], set[int]] = {}  # code, text, place: the runs it came after

    def saw(code: str, text: str, record: dict[str, Any]) -> None:
        seen.setdefault((code, text, _site(record)), set()).add(runs)

    for record in records:
        call = record.get("call")
        if "error" in record or not isinstance(call, str):
            continue
        if call == "Module.run":
            runs += 1
        elif call == "Module.get_output":
            key = record.get("module"), record.get("port", record.get("name")), str(record.get("info"))
            count = _elements(record.get("result"))
            if fetched.get(key) == runs and count >= _MANY:
                saw("P-101", f"'{key[1]}' ({count} elements) is fetched again after one run.", record)
            fetched[key] = runs
            outputs[_id(record.get("result"))] = count
        elif call in ("Tensor.astype", "Tensor.clone") and outputs.get(_id(record.get("self")), 0) >= _MANY:
            text = f"{call.rpartition('.')[2]} copies an output of {outputs[_id(record.get('self'))]} elements."
            saw("P-101", text, record)
        elif call in _MADE:
            saw("P-102", f"{_MADE[call]} between runs.", record)
        elif call == "Module.set_input":
            given, port = record.get("array"), _input(records, record)
            if isinstance(given, dict) and given.get("dtype") == "uint8" and port == "int8":
                saw("P-301", f"uint8 values for the int8 input '{record.get('name')}'.", record)
    for (code, text, place), after in seen.items():
        if code == "P-301" or _repeats(after, runs):
            yield risk(code, place, text)


def _repeats(after: set[int], runs: int) -> bool:
    """Whether something happens again and again while a module runs: after most of the runs from its first time on."""
    times = sorted(after)
    if len(times) < _REPEATED or times[-1] == times[0]:
        return False
    gaps = np.diff(times)
    return bool(np.mean(gaps <= 2) >= 0.75 and times[-1] >= _REPEATED and runs >= _REPEATED)


def _id(facts: Any) -> int:
    return int(facts.get("id", 0)) if isinstance(facts, dict) else 0


def _elements(facts: Any) -> int:
    shape = facts.get("shape") if isinstance(facts, dict) else None
    return int(np.prod(shape)) if isinstance(shape, list) else 0


def _input(records: list[dict[str, Any]], record: dict[str, Any]) -> str:
    """The dtype of the input that a call of set_input names; "" if it is not known."""
    for load in records:
        if load.get("call") == "Module.load" and load.get("module") == record.get("module"):
            name = record.get("port", record.get("name"))
            for port in load.get("inputs", ()):
                if port.get("name") == name:
                    return str(port.get("tensor", {}).get("dtype", ""))
    return ""
