"""`tcim-lite bench`: how fast a package runs here, beside this machine's limits."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..bench import MachineLimits, ModelledTime, NetworkSpeed, PackageSpeed, Timing


HELP = "measure how fast a package runs here"
DESCRIPTION = (
    "Measures load, prefill, decode and verify of a package, or load and runs of a network from an ONNX file, and this "
    "machine's limits before and after: the share says how near a run is to the limit that is lower for it. Close "
    "other programs first."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="PACKAGE", type=Path, help="a folder, or a network's .hmm, that `tcim-lite compile` wrote"
    )
    parser.add_argument("--name", help="prefix of the files, when the folder holds several packages")
    parser.add_argument(
        "--depth", type=int, metavar="N", help="tokens in the cache for the second decode (1024, or half the context)"
    )
    parser.add_argument("--profile", action="store_true", help="also print the time of every kind of step")
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    parser.add_argument(
        "--device-time",
        action="store_true",
        help="instead of measuring here, print how long the chip would take, modelled (docs/clock.md)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: seconds, bytes, operations per second")


def run(args: argparse.Namespace) -> int:
    """Prints the table."""
    from ..bench import machine_name, measure_network, measure_package, model_network, model_package, network_file
    from ..errors import ArgumentError

    network = network_file(args.folder, args.name)
    if network is not None and args.depth is not None:
        raise ArgumentError(f"--depth is for language models; {network.name} has no caches")
    if args.device_time:
        if network is None:
            times, unit = model_package(args.folder, name=args.name, depth=args.depth), "tokens/s"
        else:
            times, unit = model_network(network), "inputs/s"
        print(_modelled_json(times) if args.json else _modelled_text(times, unit))
        return 0
    speed: PackageSpeed | NetworkSpeed
    if network is None:
        speed = measure_package(args.folder, name=args.name, depth=args.depth, quick=args.quick)
    else:
        speed = measure_network(network, quick=args.quick)
    print(_json(speed, machine_name()) if args.json else _text(speed, machine_name(), args.profile))
    return 0


def _json(speed: PackageSpeed | NetworkSpeed, machine: str) -> str:
    import dataclasses
    import json

    return json.dumps({"machine": machine, **dataclasses.asdict(speed)}, indent=2)


def _modelled_json(times: Sequence[ModelledTime]) -> str:
    import dataclasses
    import json

    return json.dumps({"modelled": True, "timings": [dataclasses.asdict(time) for time in times]}, indent=2)


def _modelled_text(times: Sequence[ModelledTime], unit: str) -> str:
    from tcim_lite import _core

    lines = [
        f"{_core.chip_profile()['name']}, modelled from published figures; nothing was measured (docs/clock.md)",
        "",
        f"{'modelled':30}{unit:>10}{'ms a run':>11}",
    ]
    for time in times:
        title = f"{time.title} at {time.depth}" if time.title.startswith("decode") else time.title
        lines.append(f"{title:30}{time.tokens_per_s:10.1f}{time.seconds * 1e3:11.2f}")
    return "\n".join(lines)


def _text(speed: PackageSpeed | NetworkSpeed, machine: str, profile: bool) -> str:
    from ..bench import PackageSpeed, explain

    if isinstance(speed, PackageSpeed):
        slots = f", {speed.batch} slots" if speed.batch > 1 else ""
        facts, unit = f"context {speed.context_length}{slots}", "tokens/s"
        loads = [("load, first module", speed.load_first_s), ("load, second module", speed.load_second_s)]
    else:
        gops = (speed.int8_operations + speed.float_operations) / 1e9
        facts, unit = f"{gops:.3g} GOP a run, {_int8_share(speed):.0%} of it int8", "inputs/s"
        loads = [("load", speed.load_s)]
    lines = [
        machine,
        f"{speed.name} in {speed.folder}: {speed.quant}, {facts}, "
        f"{speed.weight_bytes / 1e6:.1f} MB of weights a run, {speed.before.threads} threads",
        "",
        f"{'':22}{unit:>10}{'ms a run':>11}{'fastest - slowest':>20}{'runs':>7}   of the limit",
    ]
    lines += [_line(timing, speed.before, speed.after) for timing in speed.timings]
    lines += ["", *reasons] if (reasons := [line for timing in speed.timings if (line := explain(timing))]) else []
    if profile:
        lines += ["", *_profile(speed.timings)]
    lines += [
        "",
        *(f"{what:22}{seconds * 1e3:10.1f} ms" for what, seconds in loads),
        f"resident memory       {speed.resident_bytes / 1e6:10.1f} MB",
        "",
        f"{'limits of the machine':22}{'before':>10}{'after':>11}",
        *_limits(speed.before, speed.after),
    ]
    low, high = sorted((speed.before.best_read, speed.after.best_read))
    if high > 1.2 * low:
        lines.append("The read rate changed by more than a fifth: other programs run, or the host moved this machine.")
    return "\n".join(lines)


def _int8_share(speed: NetworkSpeed) -> float:
    return speed.int8_operations / max(speed.int8_operations + speed.float_operations, 1)


def _line(timing: Timing, before: MachineLimits, after: MachineLimits) -> str:
    from ..bench import ROOFS

    spread = f"{timing.fastest * 1e3:.2f} - {timing.slowest * 1e3:.2f}"
    share = f"{timing.share:.0%} {ROOFS[timing.limited_by]}" if timing.limited_by else "not known here"
    if timing.limited_by == "int8" and before.int8_tile and after.int8_tile:
        tiles = (before.int8_tile + after.int8_tile) / (before.int8 + after.int8)
        share += f", {timing.share / tiles:.0%} of AMX's"
    rates = f"{timing.tokens_per_s:10.1f}{timing.seconds * 1e3:11.2f}"
    return f"{timing.title:22}{rates}{spread:>20}{timing.runs:7}   {share:>14}"


def _profile(timings: Sequence[Timing]) -> list[str]:
    """A row for every kind of step, a column for every graph."""
    names = list(dict.fromkeys((step.op, step.form) for timing in timings for step in timing.steps))
    times = [{(step.op, step.form): step.seconds for step in timing.steps} for timing in timings]
    rows = [(" ".join(name).strip(), [found.get(name, 0.0) for found in times]) for name in names]
    # Steps are those of further runs, which may have been slower.
    runs = [max(timing.seconds, sum(found.values())) for timing, found in zip(timings, times, strict=True)]
    rows.append(("outside of the steps", [run - sum(found.values()) for run, found in zip(runs, times, strict=True)]))
    width = max(len(name) for name, _ in rows) + 2
    lines = [f"{'ms a run':{width}}" + "".join(f"{timing.title:>18}" for timing in timings)]
    for name, seconds in rows:
        cells = (f"{s * 1e3:.3f} {s / run:4.0%}" if s else "-" for s, run in zip(seconds, runs, strict=True))
        lines.append(f"{name:{width}}" + "".join(f"{cell:>18}" for cell in cells))
    return lines


def _limits(before: MachineLimits, after: MachineLimits) -> list[str]:
    rows = [
        ("read, 1 GiB", "GB/s", 1e9, before.read, after.read),
        ("read, the weights", "GB/s", 1e9, before.read_model, after.read_model),
        ("read, one thread", "GB/s", 1e9, before.read_one, after.read_one),
        (f"int8, {before.int8_instruction}", "GOP/s", 1e9, before.int8, after.int8),
        ("int8 tiles (AMX)", "GOP/s", 1e9, before.int8_tile, after.int8_tile),
        ("fp32", "GFLOP/s", 1e9, before.fp32, after.fp32),
        ("core to core", "ns", 1.0, before.core_to_core_ns, after.core_to_core_ns),
    ]
    return [
        f"{what:22}{first / unit:10.1f}{second / unit:11.1f} {name}"
        for what, name, unit, first, second in rows
        if first or second
    ]
