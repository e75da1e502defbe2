"""How long the chip would take for the graphs of a package: modelled, never measured (docs/clock.md)."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tcim_lite import _core

from ..errors import ArgumentError
from ..hmm import Container, read
from .cost import graph_costs, rows_of
from .network import batch_of, read_network

_FILE = re.compile(r"(?P<name>.+)_(?P<graph>prefill|decode|verify)(_part(?P<stage>\d+))?\.(?P<kind>hmms?)")


@dataclass(frozen=True)
class ModelledTime:
    """One run on the chip, by the model.

    Attributes:
        title: "decode", "prefill, 2 devices", "decode, 4 stages"; of a network "batch 1".
        depth: Tokens in the caches before it.
        tokens: Of all slots together; of a network its batch.
        seconds: Of the run; through all stages of a pipeline, with the way from one to the next.
        tokens_per_s: Of runs one after the other; prefill chunks follow one another through the stages of a pipeline.
    """

    title: str
    depth: int
    tokens: int
    seconds: float
    tokens_per_s: float


def device_seconds(files: Sequence[Container], depth: int, profile: str | None = None) -> list[float]:
    """Modelled seconds of a run of each file, on as many devices as it is for.

    Args:
        files: Of graphs.
        depth: Tokens in the caches of every slot before the run.
        profile: The text of a profile; None for the one in use.
    """
    return [_core.run_seconds(graph_costs(file), depth, profile) for file in files]


def pipeline_seconds(stages: Sequence[Sequence[float]], handover: float) -> float:
    """When a pipeline has done its runs.

    Args:
        stages: Seconds of each run, by stage: a run begins when the stage before has done it and its own stage has done
            the run before. All stages have as many runs.
        handover: Seconds that every stage takes beside its run, in the vendor's programs.
    """
    done = [0.0] * len(stages[0])
    for runs in stages:
        free = 0.0
        for index, seconds in enumerate(runs):
            free = done[index] = max(free, done[index]) + seconds + handover
    return done[-1]


def model_package(folder: str | Path, *, name: str | None = None, depth: int | None = None) -> list[ModelledTime]:
    """Every graph of a package at depth 0, and decode at `depth` too.

    Args:
        folder: As `tcim-lite compile` wrote it.
        name: Prefix of the files, when the folder holds several packages.
        depth: Tokens in the cache for the second decode; None for 1024, or half the context where that is less.

    Raises:
        FileNotFoundError: No graph there.
        ArgumentError: Several packages and no `name`, or a `depth` that leaves no room in the context.
        HmmFormatError: A file that is damaged.
    """
    found: dict[tuple[str, str], list[Path]] = {}
    names = set()
    for path in sorted(Path(folder).glob("*.hmm*"), key=_stage_of):
        match = _FILE.fullmatch(path.name)
        if match is None or name not in (None, match["name"]):
            continue
        names.add(match["name"])
        way = "stages" if match["stage"] else "devices" if match["kind"] == "hmms" else ""
        found.setdefault((way, match["graph"]), []).append(path)
    if not found:
        raise FileNotFoundError(f"{folder}: no graphs of a package are there; `tcim-lite compile` writes them")
    if len(names) > 1:
        raise ArgumentError(f"{folder} holds several packages ({', '.join(sorted(names))}); choose one with --name")
    times = []
    for way, graph in sorted(found, key=lambda key: (key[0], ["prefill", "verify", "decode"].index(key[1]))):
        files = [read(path) for path in found[way, graph]]
        context = _context_of(files[0])
        if depth is not None and not 0 <= depth < context:
            raise ArgumentError(f"--depth {depth}: expected 0 to {context - 1}, the context less one token")
        times.append(_modelled(way, graph, files, 0))
        second = min(1024, context // 2) if depth is None else depth
        if graph == "decode" and second:
            times.append(_modelled(way, graph, files, second))
    return times


def model_network(path: str | Path) -> list[ModelledTime]:
    """A network's one graph.

    Args:
        path: A `.hmm` that `tcim-lite compile MODEL.onnx` wrote.

    Raises:
        ArgumentError: It is a graph of a language model, which `model_package` takes with its folder.
        FileNotFoundError: No such file.
        HmmFormatError: The file is damaged.
    """
    file = read_network(path)
    (seconds,), batch = device_seconds([file], 0), batch_of(file)
    return [ModelledTime(f"batch {batch}", 0, batch, seconds, batch / seconds)]


def _stage_of(path: Path) -> tuple[int, str]:
    match = _FILE.fullmatch(path.name)
    return (int(match["stage"] or 0) if match else 0, path.name)


def _context_of(file: Container) -> int:
    for graph in file.graphs:
        for value in graph.values:
            if value.kind == "state":
                return int(value.shape[2])
    if any(rows_of(file, graph_costs(file)[0])):  # a model of states alone
        with contextlib.suppress(KeyError, TypeError, ValueError):
            return int(json.loads(file.custom_msg)["context_length"])
    raise ArgumentError(
        f"{file.label}: the graph has no KV caches of a language model; give one graph by its path, "
        "such as PACKAGE/whisper_encode.hmm"
    )


def _modelled(way: str, graph: str, files: Sequence[Container], depth: int) -> ModelledTime:
    cost = graph_costs(files[0])[0]
    slots, each = rows_of(files[0], cost)
    tokens = slots * each
    stages = device_seconds(files, depth)
    if graph == "decode" and each > 1:
        graph = "verify"  # T tokens that are guesses: --mtp
    title = graph if graph == "decode" else f"{graph} {tokens}"
    if way == "devices":
        title += f", {files[0].ndevice} devices"
    seconds, bottleneck = stages[0], stages[0]
    if way == "stages":
        title += f", {len(files)} stages"
        handover = _core.chip_profile()["stage_ms"] * 1e-3
        seconds = pipeline_seconds([[seconds] for seconds in stages], handover)
        # A token needs the one before it, chunks of a prompt do not.
        bottleneck = max(stages) + handover if graph == "prefill" else seconds
    return ModelledTime(title, depth, tokens, seconds, tokens / bottleneck)
