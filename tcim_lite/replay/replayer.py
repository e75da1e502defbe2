"""Runs the calls of a recording again, on any runtime with the vendor's Python API, and compares results."""

from __future__ import annotations

import importlib
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compare import EXACT, Tolerance, difference
from .container import NO_END, Recording, RecordingError
from .fingerprint import fingerprint_of_array
from .player import Player
from .records import ArrayFacts, array_of, memory_shape, number, text, values_of
from .records import field as member
from .show import call_line

__all__ = ["Mismatch", "Replay", "assert_replays", "replay"]

# Errors that the emulator raises; another runtime may have other classes, which are then not compared.
_ERRORS = {
    "ArgumentError", "DeviceError", "HmmFormatError", "ShapeError", "StateError", "StrictError", "TcimError",
    "UnknownNameError", "UnsupportedError",
}  # fmt: skip
_NEEDED = ("load", "Option", "DevManager", "WeightManager", "Tensor", "TensorInfo")
_COMPARED_TEXTS = {
    "get_num_inputs",
    "get_num_outputs",
    "get_input_name",
    "get_output_name",
    "get_custom_msg",
    "get_core_num",
}


@dataclass(frozen=True)
class Mismatch:
    """A call whose result differs from what was recorded.

    Attributes:
        index: of the record in the recording.
        call: the record on one line, as `tcim-lite record-info --calls` has it.
        text: how the result differs.
    """

    index: int
    call: str
    text: str

    def __str__(self) -> str:
        return f"{self.call.strip()}\n    {self.text}"


@dataclass
class Replay:
    """What a replay did: the first mismatch, or all; what was compared; calls that cannot be replayed."""

    calls: int = 0
    compared: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def replay(
    recording: Recording | str | os.PathLike[str],
    runtime: Any = None,
    *,
    package: str | os.PathLike[str] | None = None,
    tolerance: Tolerance = EXACT,
    stop: bool = True,
) -> Replay:
    """Runs the calls of a recording again.

    Args:
        recording: one that was read, or its file.
        runtime: a module with the vendor's Python API, or its name; default: "tcim_lite.runtime".
        package: the folder with the models; default: where they were, else the folder of the recording.
        tolerance: of tensor values. Other results and errors must be equal.
        stop: end at the first mismatch.

    Raises:
        RecordingError: a damaged recording, one that lacks what the calls need, or a module that is no runtime.
    """
    if not isinstance(recording, Recording):
        recording = Recording(recording)
    if runtime is None or isinstance(runtime, str):
        runtime = importlib.import_module(runtime or "tcim_lite.runtime")
    missing = [name for name in _NEEDED if not hasattr(runtime, name)]
    if missing:
        name = getattr(runtime, "__name__", type(runtime).__name__)
        raise RecordingError(f"{name} is no runtime with the vendor's Python API: it has no {', '.join(missing)}")
    return _Run(recording, runtime, package, tolerance, stop).run()


def assert_replays(
    recording: Recording | str | os.PathLike[str],
    runtime: Any = None,
    *,
    package: str | os.PathLike[str] | None = None,
    tolerance: str = "",
) -> None:
    """The same as a test: AssertionError with the first mismatch. `tolerance` is text as `Tolerance.parse` takes."""
    bound = Tolerance.parse(tolerance) if tolerance else EXACT
    done = replay(recording, runtime, package=package, tolerance=bound)
    if done.mismatches:
        raise AssertionError(f"the replay differs from the recording at call {done.mismatches[0]}")
    if not done.compared:
        raise AssertionError("the recording has no result that could be compared")


class _Run:
    def __init__(self, recording: Recording, runtime: Any, package: Any, tolerance: Tolerance, stop: bool) -> None:
        self.recording, self.tolerance, self.stop = recording, tolerance, stop
        self.player = Player(recording, runtime, Path(package) if package is not None else None)
        self.done = Replay(notes=self.player.notes)
        if not recording.complete:
            self.player.notes.append(f"{recording.path} has no end: {NO_END}")
        self.rounds: Counter[int] = Counter()
        self.states = {
            (number(record, "module"), number(record, "round")): member(record, "states", list)
            for record in recording.records
            if "round" in record and "states" in record
        }

    def run(self) -> Replay:
        for index, record in enumerate(self.recording.records):
            if "call" not in record:
                continue
            if not self.player.knows(record):
                self.done.skipped[text(record, "call")] += 1
                continue
            self.done.calls += 1
            found = self.play(index, record)
            if found is not None:
                self.done.mismatches.append(Mismatch(index, call_line(index, record), found))
                if self.stop:
                    break
        return self.done

    def play(self, index: int, record: dict[str, Any]) -> str | None:
        """Makes the call; how its result differs."""
        recorded = member(record, "error", dict)
        try:
            result = self.player.call(index, record)
        except RecordingError as error:
            raise RecordingError(f"{self.recording.path}: record {index}: {error}") from None
        except Exception as error:
            if recorded is None:
                return f"it failed: {type(error).__name__}: {error}"
            self.done.compared += 1
            kinds = {type(error).__name__, text(recorded, "type")}
            if len(kinds) == 2 and kinds <= _ERRORS:
                return f"it failed with {type(error).__name__}: {error}; recorded was {text(recorded, 'type')}"
            return None
        if recorded is not None:
            self.done.compared += 1
            return f"it succeeded; recorded was {text(recorded, 'type')}: {text(recorded, 'text')}"
        return self.compare(record, result) or self.compare_states(record)

    def compare(self, record: dict[str, Any], result: Any) -> str | None:
        name = text(record, "call").rpartition(".")[2]
        out = array_of(record, "out")
        if out is not None:
            values = self.player.values(record, result)
            return None if values is None else self.compare_values(out, values)
        if name in _COMPARED_TEXTS and "value" in record:
            self.done.compared += 1
            return (
                None
                if str(result) == text(record, "value")
                else f"{result!r:.200}, recorded was {record['value']!r:.200}"
            )
        if name.endswith("_info") and "info" in record:
            self.done.compared += 1
            shape, dtype = self.player.info_of(record)
            got = (memory_shape(result), np.dtype(result.dtype).name)
            return None if got == (shape, dtype) else f"{got[1]} {list(got[0])}, recorded was {dtype} {list(shape)}"
        return None

    def compare_values(self, recorded: ArrayFacts, got: NDArray[Any]) -> str | None:
        self.done.compared += 1
        same = (got.dtype.name, got.shape) == (recorded.dtype, recorded.shape)
        if same and fingerprint_of_array(got) == recorded.hash:
            return None
        values = values_of(self.recording, recorded)
        if values is not None:
            return difference(values, got, self.tolerance)
        if not same:
            return f"{got.dtype} {list(got.shape)}, recorded was {recorded.dtype} {list(recorded.shape)}"
        hint = "" if self.tolerance.exact else "; a tolerance needs them (TCIM_LITE_RECORD_DATA=all)"
        return f"the values have another fingerprint, and the recorded values were not stored{hint}"

    def compare_states(self, record: dict[str, Any]) -> str | None:
        if text(record, "call") != "Module.run":
            return None
        module = number(record, "module")
        self.rounds[module] += number(record, "rounds", 1)
        for state in self.states.get((module, self.rounds[module]), ()):
            out = array_of(state, "out") if isinstance(state, dict) else None
            if out is None:
                raise RecordingError(f"{self.recording.path}: a round with the state {state!r:.80}")
            name = text(state, "name")
            try:
                values = self.player.state(module, name)
            except Exception as error:  # a state that this package or runtime does not have, or cannot read
                return f"state {name!r:.200} after the run: {type(error).__name__}: {error}"
            found = self.compare_values(out, values)
            if found is not None:
                return f"state {name!r:.200} after the run: {found}"
        return None
