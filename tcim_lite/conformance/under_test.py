"""The runtime under test: `from .. import under_test as rt` reads like the module itself.

It is imported on first use, so that cases can be listed without it and a crash of its import is a child's.
"""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType
from typing import Any

VARIABLE = "TCIM_CONFORMANCE_RUNTIME"  # the module's name, for child processes
DEFAULT = "tcim_lite.runtime"


def name() -> str:
    """The dotted name of the module under test."""
    return os.environ.get(VARIABLE, DEFAULT)


def package() -> str:
    """The dotted name of the package that the module under test is in: `dev_ctrl` is there too."""
    return name().rpartition(".")[0] or name()


@functools.cache
def module() -> ModuleType:
    """The module under test."""
    return importlib.import_module(name())


@functools.cache
def is_emulator() -> bool:
    """Whether this is tcim_lite's own runtime, whose choices in what the vendor leaves open are tested as well."""
    return "tcim_lite" in module().get_version().partition("\n")[2]


def emulates_on_cpu() -> bool:
    """Whether this is the emulator on a CPU: it promises the bits of the reference ops, and forks after a load.

    On a GPU (TCIM_LITE_DEVICE=cuda) it holds bounds instead and has CUDA's rules for forks (docs/cuda.md).
    """
    return is_emulator() and os.environ.get("TCIM_LITE_DEVICE", "cpu") == "cpu"


@functools.cache
def api_version() -> tuple[int, int]:
    """(major, minor) of the first line of `get_version()` (section 1.2); cases that differ by version ask it."""
    from .expectations import api_version as parse

    return parse(module().get_version())


def __getattr__(attribute: str) -> Any:
    return getattr(module(), attribute)
