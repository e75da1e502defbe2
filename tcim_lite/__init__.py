"""An open emulator of the Houmo AI M50 (xh2) runtime.

``runtime``, ``dev_ctrl`` and ``pydev_ctrl`` are imported on first use, so that ``tcim_lite.hmm`` and the model
compilers work where the compiled core was never built.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["__version__", "dev_ctrl", "pydev_ctrl", "runtime"]

__version__: str


def __getattr__(name: str) -> ModuleType:
    if name in ("runtime", "dev_ctrl", "pydev_ctrl"):
        return importlib.import_module(f"{__name__}.{name}")
    if name == "__version__":
        globals()[name] = _installed_version()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _installed_version() -> str:
    import importlib.metadata  # a tenth of what importing the runtime costs

    try:
        return importlib.metadata.version("tcim-lite")
    except importlib.metadata.PackageNotFoundError:
        return "0+source"  # a source tree that was never installed


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
