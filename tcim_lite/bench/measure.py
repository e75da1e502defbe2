"""Runs the graphs of a package, takes the time, and sets it beside the machine's limits."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import ArgumentError
from ..hmm import Container, read
from ..llm import Package
from .cost import Cost, cost_of, slot_count, weight_bytes
from .limits import MachineLimits, measure_limits
from .modules import Graph, Modules
from .profile import StepTime, Stops
from .runs import Measured, resident_bytes, timed_runs

ROOFS = {
    "read": "read rate",
    "int8": "int8 peak",
    "fp32": "fp32 peak",
    "both": "int8 and fp32 peaks",
}  # Timing.limited_by, in words


@dataclass(frozen=True)
class Timing:
    """Runs of one graph at one depth.

    Attributes:
        graph: "prefill", "decode" or "verify"; "batch" of a network that is no language model.
        depth: Tokens in the cache of every slot at the first run.
        tokens: Tokens of one run, of all slots together; of a network its batch.
        runs: How many were timed.
        seconds: Median of a run: inputs set, run, output read.
        fastest: Shortest run, seconds.
        slowest: Longest run, seconds.
        tokens_per_s: Of the median run.
        limited_by: The roof that is lower for this graph: "read", "int8", "fp32", or "both" of a network whose
            operations are of both kinds; "" when it could not be measured, or the device is no CPU.
        share: Of that roof, reached by the median run; 0 when it could not be measured.
        weights_s: Seconds that this roof leaves to Linear layers and convolutions: at "read" those of reading the
            weights.
        stops: What stopped the threads during these runs.
        steps: Of further runs, in the order in which they run.
    """

    graph: str
    depth: int
    tokens: int
    runs: int
    seconds: float
    fastest: float
    slowest: float
    tokens_per_s: float
    limited_by: str
    share: float
    weights_s: float
    stops: Stops
    steps: tuple[StepTime, ...]

    @property
    def title(self) -> str:
        """ "prefill 256", "decode at 1024"."""
        return f"decode at {self.depth}" if self.graph == "decode" else f"{self.graph} {self.tokens}"


@dataclass(frozen=True)
class PackageSpeed:
    """What `measure_package` found.

    Attributes:
        folder: The package.
        name: Prefix of its files.
        quant: Profile of its weights.
        context_length: Tokens a cache holds.
        batch: Slots of its decode graph.
        weight_bytes: Weights that one run of decode reads.
        before: The machine's limits before the runs.
        after: The same after them; far from `before` on a machine that does other work or was moved.
        load_first_s: Seconds to load the first module: the weights are read and their checksums verified.
        load_second_s: For the second one, which shares them.
        resident_bytes: Memory that modules, weights and used cache rows hold.
        timings: One a graph and depth.
    """

    folder: str
    name: str
    quant: str
    context_length: int
    batch: int
    weight_bytes: int
    before: MachineLimits
    after: MachineLimits
    load_first_s: float
    load_second_s: float
    resident_bytes: int
    timings: tuple[Timing, ...]


def measure_package(
    folder: str | Path, *, name: str | None = None, depth: int | None = None, quick: bool = False
) -> PackageSpeed:
    """Measures load, prefill, verify where there is one, and decode at depth 0 and at `depth`.

    Args:
        folder: As `tcim-lite compile` wrote it.
        name: Prefix of the files, when the folder holds several packages.
        depth: Tokens in the cache for the second decode; None for 1024, or half the context where that is less.
        quick: Fewer runs.

    Raises:
        FileNotFoundError: No package there, or none for one device.
        ArgumentError: Several packages and no `name`, or a `depth` that leaves no room in the context.
        TcimError: A file that cannot be loaded.
    """
    package = _open(folder, name)
    files = {"prefill": read(package.prefill_path), "decode": read(package.decode_path)}
    verify = package.folder / f"{package.name}_verify.hmm"
    if verify.is_file():
        files["verify"] = read(verify)
    message = json.loads(files["decode"].custom_msg or "{}")
    slots, model_bytes = slot_count(files["decode"]), weight_bytes(files["decode"])

    started_with = resident_bytes()
    modules = Modules(package, verify if "verify" in files else None, slots)
    if depth is None:
        depth = min(1024, modules.context // 2)
    if not 0 <= depth < modules.context:
        raise ArgumentError(f"--depth {depth}: expected 0 to {modules.context - 1}, the context less one token")

    if modules.decode.slots[0].carried and (os.environ.get("TCIM_LITE_STRICT") or "off") != "off":
        raise ArgumentError(
            "bench runs the same tokens again and again, which strict mode reports for states of linear attention or "
            "convolutions; unset TCIM_LITE_STRICT"
        )

    before = measure_limits(model_bytes)
    if modules.decode.length > 1:
        files["verify"] = files["decode"]
    measured = list(_measured(modules, _Runs(modules.context, before.threads, quick), depth))
    resident = resident_bytes() - started_with
    after = measure_limits(model_bytes)
    return PackageSpeed(
        folder=str(folder),
        name=package.name,
        quant=message.get("quant", "unknown"),
        context_length=modules.context,
        batch=slots,
        weight_bytes=model_bytes,
        before=before,
        after=after,
        load_first_s=modules.load_first_s,
        load_second_s=modules.load_second_s,
        resident_bytes=resident,
        timings=tuple(_timing(kind, at, found, files[kind], (before, after)) for kind, at, found in measured),
    )


def _measured(modules: Modules, runs: _Runs, depth: int) -> Iterator[tuple[str, int, Measured]]:
    """Yields what was run, behind how many tokens, and its times."""
    yield "prefill", 0, runs.of(modules.prefill, 0)
    if modules.verify is not None:
        yield "verify", 0, runs.of(modules.verify, 0)
    decode = "decode" if modules.decode.length == 1 else "verify"  # T tokens that are guesses: --mtp
    yield decode, 0, runs.of(modules.decode, 0)
    if depth > 0 and decode == "decode":
        modules.fill(depth)
        yield "decode", depth, runs.of(modules.decode, depth)


def _open(folder: str | Path, name: str | None) -> Package:
    try:
        package = Package.open(folder, name)
    except ValueError as error:
        raise ArgumentError(str(error)) from error
    for path in (package.prefill_path, package.decode_path):
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing: this package has graphs for several devices only, which share one CPU here; "
                "compile it without --no-single-device"
            )
    return package


@dataclass(frozen=True)
class _Runs:
    context: int
    threads: int
    quick: bool

    def of(self, graph: Graph, depth: int) -> Measured:
        """Decode goes on from token to token as in an answer; the others start at `depth` again."""
        current = min(graph.length, self.context - depth)
        position = depth

        def onward() -> None:
            nonlocal position
            graph.run(position, current)
            if graph.length == 1:
                position = position + 1 if position + 1 < self.context else depth

        return timed_runs(graph.module, onward, lambda: graph.run(depth, current), self.threads, self.quick)


def _timing(
    kind: str, depth: int, found: Measured, file: Container, limits: tuple[MachineLimits, MachineLimits]
) -> Timing:
    cost = cost_of(file, depth)
    seconds = statistics.median(found.times)
    # The limits are the CPU's.
    limited_by, roof_s = _roof(cost, limits) if os.environ.get("TCIM_LITE_DEVICE", "cpu") == "cpu" else ("", 0.0)
    linear_s = roof_s * weight_bytes(file) / cost.read_bytes if limited_by == "read" else roof_s
    return Timing(
        graph=kind,
        depth=depth,
        tokens=cost.tokens,
        runs=len(found.times),
        seconds=seconds,
        fastest=min(found.times),
        slowest=max(found.times),
        tokens_per_s=cost.tokens / seconds,
        limited_by=limited_by,
        share=roof_s / seconds,
        weights_s=linear_s,
        stops=found.stops,
        steps=found.steps,
    )


def _roof(cost: Cost, limits: tuple[MachineLimits, MachineLimits]) -> tuple[str, float]:
    """Which limit is the lower one, and the seconds that a run takes at it. Limits are means of before and after."""
    roofs = []
    for limit, amount in (("read", cost.read_bytes), ("int8" if cost.quantized else "fp32", cost.operations)):
        rate = statistics.mean(moment.best_read if limit == "read" else getattr(moment, limit) for moment in limits)
        roofs.append((amount / rate, limit) if rate else (0.0, ""))
    seconds, limit = max(roofs)
    return limit, seconds
