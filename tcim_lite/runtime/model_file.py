"""What a model is loaded from: a file, or the bytes of one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tcim_lite import _core
from tcim_lite.runtime.arguments import file_path
from tcim_lite.runtime.managers import DevManager, WeightManager
from tcim_lite.runtime.options import Option

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from tcim_lite._core import Module as CoreModule

__all__ = ["open_model"]


def open_model(path: str | os.PathLike[str] | Buffer, option: Option | None) -> CoreModule:
    """The core's module; arguments and errors as those of `load`."""
    if option is None:
        option = Option()
    elif not isinstance(option, Option):
        wrap = isinstance(option, (DevManager, WeightManager, int))
        hint = f"; write load(path, Option({option!r:.200}))" if wrap else ""
        raise TypeError(f"option={option!r:.200}: expected an Option{hint}")
    options = option._load_options()
    if not isinstance(path, (str, os.PathLike)):
        try:
            data = memoryview(path)
        except TypeError:
            raise TypeError(f"path={path!r:.200}: expected a str, a path or the bytes of a model") from None
        if isinstance(path, bytes) and path.endswith((b".hmm", b".hmms")) and len(path) < 4096:
            raise TypeError(f"path={path!r:.200}: bytes are taken as a model, not as its path; give os.fsdecode(path)")
        return _core.load_bytes(data, options)
    return _core.load_file(file_path(path), options)
