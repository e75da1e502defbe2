"""Stands in for the vendor's compiler, of whose tests a demo takes `tcim.test_utils.utils`.

A `tcim` anywhere else on the path goes before it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from tcim_lite.no_compiler import INSTEAD

_WHY = f"tcim is the vendor's compiler, {INSTEAD}"
_OURS = Path(__file__).parent


class _NoOthers:
    """Answers behind all finders of modules: what they have not found below this package is not there."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.startswith(f"{__name__}."):
            raise ModuleNotFoundError(f"No module named {name!r}: {_WHY}", name=name)
        return None


def __getattr__(name: str) -> NoReturn:
    # What Python itself asks of a module, and what `from tcim import test_utils` imports next.
    if name.startswith("__") or (_OURS / name).is_dir():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise ImportError(f"cannot import {name!r}: {_WHY}", name=__name__)


def _become_the_real_one() -> None:
    others = [entry for entry in sys.path if Path(entry).resolve() != _OURS.parent]
    spec = PathFinder.find_spec(__name__, others)
    if spec is None or spec.loader is None:  # none, or a folder that happens to have its name
        sys.meta_path.append(_NoOthers)
        return
    sys.modules[__name__] = module = module_from_spec(spec)
    spec.loader.exec_module(module)


_become_the_real_one()
