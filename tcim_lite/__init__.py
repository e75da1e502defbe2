"""An open emulator of the Houmo AI M50 (xh2) runtime.

``tcim_lite.runtime`` and ``tcim_lite.dev_ctrl`` are imported on first use, so that ``tcim_lite.hmm`` and the model
compilers work where the compiled core was never built.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from types import ModuleType

__all__ = ["__version__", "dev_ctrl", "runtime"]

try:
    __version__ = importlib.metadata.version("tcim-lite")
except importlib.metadata.PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0.1.0"


def __getattr__(name: str) -> ModuleType:
    if name in ("runtime", "dev_ctrl"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
