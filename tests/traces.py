"""The events of a trace for Perfetto, after a look at all that a viewer relies on."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path


def checked(file: Path) -> list[dict]:
    """The events; fails if the file breaks a rule of the format."""
    events = json.loads(file.read_text())
    lanes = defaultdict(list)
    flows = defaultdict(list)
    counters = defaultdict(list)
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    processes = [e["pid"] for e in events if e["name"] == "process_name"]
    assert len(processes) == len(set(processes))
    for event in events:
        assert event["ph"] in "XMCsf"
        assert event["pid"] in processes
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert (event["pid"], event["tid"]) in named
            lanes[event["pid"], event["tid"]].append((round(event["ts"] * 1e3), round(event["dur"] * 1e3)))
        elif event["ph"] in "sf":
            flows[event["id"]].append(event)
        elif event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())
            counters[event["pid"], event["name"]].append(event["ts"])
    for slices in lanes.values():
        open_until: list[int] = []
        for begin, duration in sorted(slices, key=lambda each: (each[0], -each[1])):
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or begin + duration <= open_until[-1], "slices of a lane nest, or do not touch"
            open_until.append(begin + duration)
    for start, finish in flows.values():
        assert (start["ph"], finish["ph"], finish["bp"]) == ("s", "f", "e")
        assert start["ts"] <= finish["ts"]
        for end in (start, finish):
            inside = [b for b, d in lanes[end["pid"], end["tid"]] if b <= round(end["ts"] * 1e3) <= b + d]
            assert inside, "an arrow begins and ends in a slice"
    for times in counters.values():
        assert times == sorted(times)
    return events


def slices(events: list[dict], category: str) -> list[dict]:
    return [event for event in events if event["ph"] == "X" and event["cat"].split(",")[0] == category]
