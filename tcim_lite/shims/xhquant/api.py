"""What a demo that only runs compiled models imports from the vendor's quantiser."""

from __future__ import annotations

from typing import Any, NoReturn

from tcim_lite.no_compiler import INSTEAD

__all__ = ["HMONNXInference"]

_WHY = f"xhquant quantises models for the vendor's compiler, {INSTEAD}"


class HMONNXInference:
    """Runs a quantised model on a GPU in the vendor's environment. It may be imported here, but not made."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        raise NotImplementedError(f"HMONNXInference: {_WHY}")


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):  # what Python itself asks of a module
        raise AttributeError(name)
    raise ImportError(f"cannot import {name!r}: {_WHY}", name=__name__)
