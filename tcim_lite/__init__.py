"""An open emulator of the Houmo AI M50 (xh2) runtime.

``runtime``, ``dev_ctrl`` and ``pydev_ctrl`` are imported on first use, so that ``tcim_lite.hmm`` and the model
compilers work where the compiled core was never built.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tcim_lite.runtime import Module

__all__ = ["Module", "__version__", "dev_ctrl", "pydev_ctrl", "runtime"]

__version__: str


def __getattr__(name: str) -> Any:
    if name in ("runtime", "dev_ctrl", "pydev_ctrl"):
        return importlib.import_module(f"{__name__}.{name}")
    if name == "Module":  # a tool of the vendor's names it in annotations; no other name is asked of the package
        return importlib.import_module(f"{__name__}.runtime").Module
    if name == "_core":  # asked for by `from tcim_lite import _core`, before it looks for the module
        _check_installed()
    if name == "__version__":
        globals()[name] = _installed_version()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_hint(name)}")


def _hint(name: str) -> str:
    """Where the runtime has the name. Probes for what begins with an underscore import nothing."""
    if name.startswith("_"):
        return ""
    try:
        runtime = importlib.import_module(f"{__name__}.runtime")
    except ImportError:  # the core was never built
        return ""
    return f"; write {__name__}.runtime.{name}" if name in runtime.__all__ else ""


def _installed_version() -> str:
    import importlib.metadata  # a tenth of what importing the runtime costs

    try:
        return importlib.metadata.version("tcim-lite")
    except importlib.metadata.PackageNotFoundError:
        return "0+source"  # a source tree that was never installed


def _check_installed() -> None:
    """Raises ImportError in a source tree, which Python imports instead of what is installed if it runs there."""
    from importlib.util import find_spec

    if find_spec(f"{__name__}._core") is None:
        raise ImportError(
            f"{__path__[0]} is a source tree without the compiled core; install it with `pip install .`, then run "
            "Python in another folder, or as `python -P`, to import what is installed",
            name=f"{__name__}._core",
        )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
