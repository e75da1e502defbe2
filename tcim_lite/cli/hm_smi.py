"""The command `hm_smi` of the vendor's driver, whose output programs that watch devices read."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from ..console import run_main
from ..errors import TcimError

if TYPE_CHECKING:
    from ..dev_ctrl.monitor import DeviceState

_RULE = "-" * 80
_MISSING = "unavailable"
_MEMORIES, _CORES = ("DDR0", "DDR2", "DDR4", "DDR5"), ("Core0", "Core1")  # places of temperatures
_LEAST_CLOCK = 0.5  # of the highest, as DVFS has it


def main(argv: Sequence[str] | None = None) -> int:
    """Prints what is known of the devices."""
    parser = argparse.ArgumentParser(
        prog="hm_smi", description="Shows the emulated devices as the vendor's hm_smi does; it changes nothing."
    )
    parser.add_argument("-a", action="store_true", help="show everything, as without it")
    parser.add_argument("-d", type=int, metavar="DEVICE", help="show this device alone")
    parser.add_argument("-v", action="count", help="ignored")
    args = parser.parse_args(argv)
    from ..dev_ctrl.monitor import snapshot
    from ..runtime import get_version

    try:
        devices = snapshot().devices
        version = get_version().split()[0].upper()
    except TcimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if args.d is not None and args.d not in [device.id for device in devices]:
        print(f"error: device {args.d} does not exist; leave out -d to show all {len(devices)}", file=sys.stderr)
        return 2
    shown = [device for device in devices if args.d in (None, device.id)]
    print("\n".join(_lines(shown, version)))
    return 0


def _lines(devices: Sequence[DeviceState], version: str) -> Iterator[str]:
    yield from (_RULE, "  sdk build infos", _RULE)
    for key, text in (("Build_Time", "not recorded"), ("HMSW_Version", version), ("HM_SMI_Version", "V1.0.0")):
        yield f"  {key:<15}: {text}"
    yield from (_RULE, time.strftime("  %a %b %d %H:%M:%S %Z %Y"), _RULE)
    for device in devices:
        yield from (f"  device{device.id} detail infos", _RULE)
        for key, value in _fields(device, version):
            if isinstance(value, str):
                yield f"  {key:<23}: {value}"
                continue
            yield f"  {key:<23}:"
            yield from (f"    {name:<21}: {text}" for name, text in value)
        yield _RULE


def _fields(device: DeviceState, version: str) -> Iterator[tuple[str, str | list[tuple[str, str]]]]:
    """In the order of the vendor's; programs read the first line that has a name in it."""
    highest = f"{device.clock_mhz:.1f} Mhz"
    busy = f"{device.utilization:.1f} %"
    mode = device.dvfs_mode.name.lower().replace("_", "")
    yield from (("Driver_Version", version), ("Vendor", "Houmo"), ("BDF", _MISSING), ("Dev", str(device.id)))
    yield "Cur_BandWidth", _MISSING
    power = [("DVFS_Mode", mode), ("Cur_Ipu_Freq", highest), ("Lock_Ipu_Max_Clock", highest)]
    power += [("Lock_Ipu_Min_Clock", f"{_LEAST_CLOCK * device.clock_mhz:.1f} Mhz"), ("IPU_Load", busy)]
    yield "Power_Management", power
    yield "Firmware_Version", "emulated"
    cores = [("Core_Num", str(len(_CORES))), ("Core_Freq", highest), ("Voltage", _MISSING)]
    yield "IPU_Infos", [*cores, *((f"{core}_Util", busy) for core in _CORES), ("Average_Util", busy)]
    yield from (("Group_Id", str(device.id)), ("Chip_Id", "0"), ("SN", _MISSING), ("PN", _MISSING))
    yield "Model", "".join(char if char.isprintable() else "?" for char in device.name)
    free = max(0, device.memory_total - device.memory_used)
    sizes = (("DDR_Memory_Free", free), ("DDR_Memory_Total", device.memory_total))
    yield "DDR_Memory_Infos", [(key, f"{size / (1 << 20):.1f}MB") for key, size in sizes]
    yield "Temperature", [(place, f"{device.modelled_temperature_c:.1f} C") for place in (*_MEMORIES, *_CORES)]
    yield "Board_Power", f"{device.modelled_power_watts:.2f} W"


def entry_point() -> NoReturn:
    """The installed command: `main`, which an interrupt ends with status 130."""
    run_main(main)
