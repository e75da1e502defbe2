"""`tcim-lite smi`: the logical devices and the processes that use them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..dev_ctrl.monitor import Snapshot


HELP = "show the devices and the processes that use them"
DESCRIPTION = "Shows the devices that the environment declares or a process uses, and your processes on them."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON: memory in bytes, utilization in percent, modelled power in watts and temperature in Celsius",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the tables."""
    from ..dev_ctrl.monitor import snapshot

    now = snapshot()
    print(_json(now) if args.json else _text(now))
    return 0


def _json(now: Snapshot) -> str:
    import dataclasses
    import json

    content = dataclasses.asdict(now)
    for device in content["devices"]:
        device["dvfs_mode"] = device["dvfs_mode"].name
    return json.dumps(content, indent=2)


def _text(now: Snapshot) -> str:
    devices = [
        (
            str(device.id),
            _printable(device.name),
            f"{_megabytes(device.memory_used)} / {_megabytes(device.memory_total)} MB",
            f"{device.utilization:.0f} %",
            f"{device.clock_mhz} MHz",
            device.dvfs_mode.name,
            f"{device.modelled_power_watts:.1f} W",
            f"{device.modelled_temperature_c:.0f} C",
        )
        for device in now.devices
    ]
    processes = [
        (
            str(process.pid),
            str(process.device_id),
            f"{_megabytes(process.memory_used)} MB",
            f"{process.utilization:.0f} %",
            _printable(process.command),
        )
        for process in now.processes
    ]
    header = ("DEVICE", "NAME", "MEMORY USED / TOTAL", "UTIL", "CLOCK", "DVFS", "POWER*", "TEMP*")
    lines = _table(header, devices, right={0, 2, 3, 4, 6, 7})
    if not devices:
        lines.append("no devices: the environment declares none")
    else:
        lines.append("* modelled from UTIL, not measured")
    lines.append("")
    lines += _table(("PID", "DEVICE", "MEMORY", "UTIL", "COMMAND"), processes, right={0, 1, 2, 3})
    if now.problem is not None:
        lines.append(f"processes unknown: {now.problem}")
    elif not processes:
        lines.append("no process uses a device")
    return "\n".join(lines)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: set[int]) -> list[str]:
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [header, *rows]
    ]


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.1f}"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
