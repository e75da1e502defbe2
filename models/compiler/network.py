"""A network of a package, which is compiled as one from ONNX is: in floats."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..onnx import onnx_bytes
from .parts import Beside

if TYPE_CHECKING:
    import onnx


def network(stem: str, make: Callable[[], onnx.ModelProto], dtype: str, tensor_names: Iterable[str] = ()) -> Beside:
    """Returns what becomes `STEM.hmm`, of what `make` makes when it is written of the checkpoint's `tensor_names`."""
    return Beside(Path(f"{stem}.hmm"), lambda: onnx_bytes(make(), dtype), frozenset(tensor_names))
