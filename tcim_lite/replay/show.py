"""A recording as text: what it is of, its costs by call, and its calls."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from .container import NO_END, Recording
from .records import array_of, field, number, tensor_of, text

__all__ = ["call_line", "overview"]


def overview(recording: Recording) -> Iterator[str]:
    """Lines on the whole recording.

    Raises:
        RecordingError: a record that cannot be read.
    """
    meta, (major, minor) = recording.meta, recording.version
    yield f"{recording.path}  recording, format {major}.{minor}, {recording.path.stat().st_size / 1e6:.2f} MB"
    started = field(meta, "time", int)
    if started is not None and 0 <= started < 1 << 40:
        yield f"  time      {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(started))}"
    for key in ("runtime", "command", "recorder"):
        if value := text(meta, key):
            yield f"  {key:9} {printable(value.replace(chr(10), ', '))}"
    environment = field(meta, "environment", dict, {})
    if environment:
        yield "  with      " + printable(" ".join(f"{name}={value}" for name, value in environment.items()))
    stored = sum(1 for _ in recording.data_hashes())
    redacted = ", redacted" if field(meta, "redacted", bool, False) else ""
    yield (
        f"  data      {text(meta, 'data', 'unknown')}{redacted}: "
        f"{stored} tensors stored, {recording.data_bytes / 1e6:.2f} MB"
    )
    if not recording.complete:
        yield f"  cut off   the file has no end: {NO_END}"
    yield ""
    yield from _models(recording)
    yield from _costs(recording)


def _models(recording: Recording) -> Iterator[str]:
    for record in recording.records:
        if record.get("call") != "Module.load" or "load" not in record:
            continue
        load = field(record, "load", dict)
        ports = [len(field(record, key, list, [])) for key in ("inputs", "outputs")]
        size = f", {number(load, 'bytes') / 1e6:.2f} MB" if "bytes" in load else ""
        failed = "  FAILED" if "error" in record else f"  {ports[0]} inputs, {ports[1]} outputs"
        yield f"  model {number(record, 'module')}  {printable(text(record, 'name'))}{size}{failed}"


def _costs(recording: Recording) -> Iterator[str]:
    totals: dict[str, list[int]] = {}
    errors = 0
    for record in recording.records:
        name = text(record, "call") or "(round of a run)"
        row = totals.setdefault(name, [0, 0, 0])
        row[0] += 1
        row[1] += number(record, "ns")
        row[2] += number(record, "modelled_ns")
        errors += "error" in record
    modelled = any(row[2] for row in totals.values())
    title = f"  {'call':28} {'count':>8} {'host ms':>11}" + (f" {'modelled device ms':>20}" if modelled else "")
    yield title
    for name, (count, host, device) in sorted(totals.items(), key=lambda item: -item[1][1]):
        line = f"  {printable(name):28} {count:8} {host / 1e6:11.3f}"
        yield line + (f" {device / 1e6:20.3f}" if modelled and device else "")
    yield f"  {errors} calls failed"


def call_line(index: int, record: dict[str, Any]) -> str:
    """One record on one line, without its line end.

    Raises:
        RecordingError: a record that cannot be read.
    """
    if "round" in record:
        what = f"round {number(record, 'round')} of model {number(record, 'module')}"
        return f"{index:6}  {number(record, 'at') / 1e6:11.3f} ms  {what}" + (
            "  FAILED" if record.get("failed") else ""
        )
    parts = []
    if name := text(record, "name"):
        parts.append(repr(name))
    for key in ("self", "tensor", "result"):
        if (tensor := tensor_of(record, key)) is not None:
            place = "host" if tensor.device < 0 else f"device {tensor.device}"
            parts.append(f"{key} {tensor.dtype}{list(tensor.shape)}@{place}#{tensor.id}")
    for key in ("array", "out"):
        if (values := array_of(record, key)) is not None:
            shown = f"{values.hash:016x}" if values.value is None else str(values.value)
            parts.append(f"{key} {values.dtype}{list(values.shape)} {shown}")
    if value := text(record, "value"):
        parts.append(f"= {value!r:.80}")
    module = f" model {number(record, 'module')}" if "module" in record else ""
    error = field(record, "error", dict)
    failed = f"  FAILED {text(error, 'type')}: {text(error, 'text')}" if error is not None else ""
    line = (
        f"{index:6}  {number(record, 'at') / 1e6:11.3f} ms  {text(record, 'call')}{module}  {', '.join(parts)}{failed}"
    )
    return printable(line.rstrip())


def printable(given: str) -> str:
    """Without what a terminal takes for a command."""
    return "".join(char if char.isprintable() else "?" for char in given)
