"""Layers that listen to every call of the runtime API, Python's and C++'s alike. Extra: not in the vendor's API.

`TCIM_LITE_LAYERS=trace` and `TCIM_LITE_STRICT=warn` enable them from outside. While none is enabled, calls cost nothing
extra.
"""

from __future__ import annotations

import os

from tcim_lite import _core
from tcim_lite._core import Finding as Finding
from tcim_lite._core import FindingKind as FindingKind
from tcim_lite.errors import StrictError

__all__ = ["StrictError", "active", "available", "catalogue", "disable", "enable", "take_findings"]


def available() -> list[str]:
    """The names of all layers."""
    return _core.known_layers()


def active() -> list[str]:
    """The layers that listen now, in the order in which they hear of a call.

    Raises:
        ArgumentError: `TCIM_LITE_LAYERS` names one there is not.
    """
    return _core.active_layers()


def enable(name: str, **options: str | os.PathLike[str]) -> None:
    """Lets a layer listen to all calls from now on; enabling it again replaces it.

    Args:
        name: "strict" judges calls ([strict mode](../strict.md)); "trace" writes calls and runs, as lines or for
            Perfetto ([traces](../trace.md)); "clock" lets runs take the chip's modelled time ([clock](../clock.md));
            "faults" makes calls fail ([fault injection](../fault-injection.md)); "record" writes a file that can be
            replayed ([recordings](../recording.md)).
        options: of "strict": `mode`, "warn" or "error". Of "trace": `file` to append to (default: standard error),
            `format`, "text", "json" or "chrome" (default for a file that ends in .json), and `phases`, "none", "layers"
            or "ops". Of "clock": `mode`, "virtual" or "realtime". Of "faults": `file` or `rules`, its
            text. Of "record": `file`, which is replaced, and `data`, one of "none", "inputs", "outputs", "all" and
            "states". An option that is not given comes from the environment.

    Raises:
        ArgumentError: there is no such layer or option, or its value is invalid.
    """
    _core.enable_layer(name, {key: os.fspath(value) for key, value in options.items()})


def disable(name: str) -> None:
    """Ends a layer; does nothing if it does not listen.

    Raises:
        ArgumentError: there is no such layer.
    """
    _core.disable_layer(name)


def catalogue() -> list[FindingKind]:
    """Every finding strict mode can make: `code`, `title`, `fault`, `rule`, `why`, `example` and `fix`, all text."""
    return _core.strict_catalogue()


def take_findings() -> list[Finding]:
    """What strict mode found since the last call of this, at most 1000, each place once.

    A finding has `code`, `detail`, `site` ("file:line" of the caller) and `message`, all text.
    """
    return _core.take_findings()
