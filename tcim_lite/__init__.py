"""An open emulator of the Houmo AI M50 (xh2) runtime.

``runtime``, ``dev_ctrl`` and ``pydev_ctrl`` are imported on first use, so that ``tcim_lite.hmm`` and the model
compilers work where the compiled core was never built.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from types import ModuleType

__all__ = ["__version__", "dev_ctrl", "pydev_ctrl", "runtime"]

try:
    __version__ = importlib.metadata.version("tcim-lite")
except importlib.metadata.PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+source"


def __getattr__(name: str) -> ModuleType:
    if name in ("runtime", "dev_ctrl", "pydev_ctrl"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
