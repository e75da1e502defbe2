"""Copies of a recording: without what its owner may want to keep (values, paths, the command line), or packed."""

from __future__ import annotations

import os
from typing import Any

from .container import Recording, RecordingError
from .records import field
from .writer import RecordingWriter

__all__ = ["pack", "redact"]

_VALUES = ("array", "out")


def redact(recording: Recording, target: str | os.PathLike[str]) -> None:
    """Writes a copy with neither data nor values, folders of paths, texts of errors nor the command line.

    Names of files, inputs and outputs, shapes, dtypes, times, fingerprints and kinds of errors stay: whether two
    recordings are of equal values can still be seen.

    Raises:
        RecordingError: `target` is the recording itself.
    """
    _check_target(recording, target)
    kept = ("recorder", "runtime", "time", "data", "environment")
    meta = {key: recording.meta[key] for key in kept if key in recording.meta}
    with RecordingWriter(target, {**meta, "redacted": True}) as writer:
        for record in recording.records:
            writer.add_record(_redacted(record))
        writer.close(complete=recording.complete)


def pack(recording: Recording, target: str | os.PathLike[str]) -> None:
    """Writes a copy of the same content in less space, with zstd.

    Raises:
        RecordingError: `target` is the recording itself, stored data are damaged, or this Python has no zstd.
    """
    _check_target(recording, target)
    with RecordingWriter(target, recording.meta, pack=True) as writer:
        for hashed in recording.data_hashes():
            writer.add_data(recording.data(hashed), hashed)
        for record in recording.records:
            writer.add_record(record)
        writer.close(complete=recording.complete)


def _check_target(recording: Recording, target: str | os.PathLike[str]) -> None:
    if os.path.exists(target) and os.path.samefile(target, recording.path):
        raise RecordingError(f"{target}: a copy needs a name of its own")


def _redacted(record: dict[str, Any]) -> dict[str, Any]:
    made = dict(record)
    if made.get("call") in ("Module.load", "load_model_info"):
        made["name"] = os.path.basename(str(made.get("name", "")))
        made.pop("value", None)
    for key in _VALUES:
        if isinstance(made.get(key), dict):
            made[key] = _without_value(made[key])
    if isinstance(made.get("error"), dict):
        made["error"] = {"type": made["error"].get("type", "")}
    states = field(made, "states", list)
    if states is not None:
        made["states"] = [
            {key: _without_value(value) if key == "out" else value for key, value in state.items()}
            for state in states
            if isinstance(state, dict)
        ]
    made.pop("site", None)
    return made


def _without_value(values: Any) -> Any:
    return {key: value for key, value in values.items() if key != "value"} if isinstance(values, dict) else None
