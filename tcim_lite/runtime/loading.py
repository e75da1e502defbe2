"""Functions that load a model, or say what is in one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tcim_lite import _core
from tcim_lite.marks import chosen, exact
from tcim_lite.runtime.arguments import file_path
from tcim_lite.runtime.module import Module
from tcim_lite.runtime.options import Option

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["load", "load_model_info"]


@exact("1.2")
def load(path: str | os.PathLike[str] | Buffer, option: Option | None = None) -> Module:
    """Loads a model.

    Args:
        path: a `.hmm` file. Extra, not in the vendor's API: the bytes of one that contains its weights, in anything
            with a buffer (bytes, an mmap, an array).
        option: None means device 0 and weights of its own.

    Returns:
        The module, ready to run.

    Raises:
        HmmFormatError: a missing, damaged or foreign file, or weights that do not belong to it.
        DeviceError: a device that does not exist or has no memory left.
        UnsupportedError: a model this version cannot run.
    """
    return Module.load(path, option)


@chosen("1.2", "JSON; `input`, `output`, and `custom_msg` in `info` are as the vendor's engine reads them")
def load_model_info(path: str | os.PathLike[str]) -> str:
    """A description of a model file as a JSON object. Loads no weights.

    `input` and `output` are lists of objects with `name`, `shape`, `dtype` ("FLOAT16") and `format`; `info` has name,
    version, producer, target, `ncore`, `ndevice` and `custom_msg`, a string; `weights` has their count, bytes and file.

    Raises:
        HmmFormatError: the file is missing or damaged.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path={path!r:.200}: expected a str or a path")
    return _core.describe_model(file_path(path))
