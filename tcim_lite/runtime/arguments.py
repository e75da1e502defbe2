"""Checks of arguments: a mistake is named in the caller's words, not by the compiled core."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from typing import Any, TypeVar

from tcim_lite.errors import ArgumentError, HmmFormatError

__all__ = ["checked", "file_path", "integer", "integers", "slot_name"]

T = TypeVar("T")


def checked(value: Any, kind: type[T]) -> T:
    """`value`; TypeError unless it is a `kind`."""
    if not isinstance(value, kind):
        raise TypeError(f"expected a tcim_lite.runtime.{kind.__name__}, got {type(value).__name__}")
    return value


def integer(value: Any, what: str) -> int:
    """`value` as an int of 64 bits; TypeError for another type (floats included), ArgumentError beyond the range."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: expected an int, got {value!r}") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise ArgumentError(f"{what}: {number} does not fit 64 bits")
    return number


def integers(values: Iterable[Any], what: str) -> list[int]:
    """`values` as ints; errors as `integer`."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{what}: expected a list of ints, got {values!r}")
    return [integer(value, what) for value in values]


def slot_name(name: Any) -> str:
    """`name`; TypeError unless it is a str."""
    if not isinstance(name, str):
        raise TypeError(f"name={name!r}: expected the name of an input or output, a str")
    return name


def file_path(path: Any) -> bytes:
    """The path as the system takes it; any file name Python can express works."""
    encoded = os.fsencode(path)
    if not encoded:
        raise HmmFormatError("the path is empty; give the path of a .hmm")
    if b"\0" in encoded:
        raise HmmFormatError(f"{path!r:.200}: a path cannot hold a NUL character; give the path of a .hmm")
    return encoded
