"""What a trace of calls (`TCIM_LITE_LAYERS=trace:FILE.json`) holds, added up ([traces](../trace.md))."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ArgumentError

__all__ = ["Cost", "Summary", "summarize"]

_MOST_BYTES = 2 << 30  # of a trace; its events take about ten times as much memory
_LARGEST = 1 << 64  # of what a trace counts: microseconds, bytes
_SECTIONS = ("call", "run", "layer", "op", "modelled")


@dataclass(frozen=True)
class Cost:
    """All slices of one name.

    Attributes:
        name: Of a call, a model's file, a layer, an op, or what the modelled chip does.
        count: How many slices.
        seconds: Of all of them.
        longest: Seconds of the longest.
        errors: Calls that raised an error.
    """

    name: str
    count: int
    seconds: float
    longest: float
    errors: int


@dataclass(frozen=True)
class Summary:
    """A trace.

    Attributes:
        processes: By process id, the start of its command line.
        seconds: From the first slice to the end of the last.
        costs: By section ("call", "run", "layer", "op": host time, measured; "modelled": the chip's), most first.
        cache_rows: By counter, the most rows that were live in a slot.
        memory: By device, the most bytes that were in use.
    """

    processes: dict[int, str]
    seconds: float
    costs: dict[str, list[Cost]]
    cache_rows: dict[str, int]
    memory: dict[str, int]


def summarize(path: str | Path) -> Summary:
    """Reads a trace.

    Raises:
        ArgumentError: There is no such regular file, it has more than 2 GiB, or it is no trace of this project.
        OSError: It cannot be read.
    """
    events = _events(Path(path))
    slices = [event for event in events if event["ph"] == "X"]
    begin = min((float(each["ts"]) for each in slices), default=0.0)
    end = max((float(each["ts"]) + float(each["dur"]) for each in slices), default=0.0)
    counters = [event for event in events if event["ph"] == "C"]
    return Summary(
        processes={int(e["pid"]): e["args"]["name"] for e in events if (e["ph"], e["name"]) == ("M", "process_name")},
        seconds=(end - begin) * 1e-6,
        costs={section: _costs(each for each in slices if _section(each) == section) for section in _SECTIONS},
        cache_rows=_most(counters, "cache rows live, ", max),
        memory=_most(counters, "memory of ", sum),
    )


def _events(path: Path) -> list[Mapping[str, Any]]:
    if not path.is_file():
        raise ArgumentError(f"{path}: there is no such file, or it is no regular file")
    if path.stat().st_size > _MOST_BYTES:
        raise ArgumentError(f"{path}: has more than {_MOST_BYTES} bytes; look at it in Perfetto")
    try:
        events = json.loads(path.read_bytes())
        if not isinstance(events, list):
            raise TypeError
        for event in events:
            _check(event)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ArgumentError(
            f"{path} is no trace of calls, or a part of one; copy it again, or write one with "
            "TCIM_LITE_LAYERS=trace:FILE.json"
        ) from None
    return events


def _check(event: Any) -> None:
    """Raises an error of Python unless the event has what the summary reads of its kind."""
    if not isinstance(event, dict):
        raise TypeError
    _check_text(event["name"])
    _check_number(event["pid"])
    arguments = event.get("args", {})
    if not isinstance(arguments, dict):
        raise TypeError
    match event["ph"]:
        case "X":
            _check_text(event["cat"])
            _check_number(event["ts"])
            _check_number(event["dur"])
        case "C":
            _check_number(sum(_check_number(each) for each in arguments.values()))
        case "M" if event["name"] == "process_name":
            _check_text(arguments["name"])


def _check_text(value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # JSON can hold halves of surrogate pairs, which nobody can print


def _check_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _LARGEST:  # or a NaN
        raise TypeError
    return value


def _section(event: Mapping[str, Any]) -> str:
    return str(event["cat"]).split(",")[0]


def _costs(slices: Iterable[Mapping[str, Any]]) -> list[Cost]:
    found: dict[str, list[float]] = {}
    errors: dict[str, int] = {}
    for each in slices:
        found.setdefault(each["name"], []).append(float(each["dur"]) * 1e-6)
        errors[each["name"]] = errors.get(each["name"], 0) + ("error" in each.get("args", {}))
    costs = [Cost(name, len(times), sum(times), max(times), errors[name]) for name, times in found.items()]
    return sorted(costs, key=lambda cost: (-cost.seconds, cost.name))


def _most(counters: Iterable[Mapping[str, Any]], prefix: str, of: Any) -> dict[str, int]:
    most: dict[str, int] = {}
    for each in counters:
        if each["name"].startswith(prefix):
            name = each["name"].removeprefix(prefix)
            most[name] = max(most.get(name, 0), int(of(each.get("args", {}).values() or [0])))
    return most
