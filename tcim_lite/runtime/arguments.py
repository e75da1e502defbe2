"""Checks of arguments: a mistake is named in the caller's words, not by the compiled core."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from tcim_lite.errors import ArgumentError, HmmFormatError, UnknownNameError

__all__ = ["checked", "file_path", "flag", "integer", "integers", "port_name", "text", "texts"]

T = TypeVar("T")


def checked(value: Any, kind: type[T], what: str, hint: str = "") -> T:
    """`value`; TypeError unless it is a `kind`. `hint` says what to do."""
    if not isinstance(value, kind):
        advice = f"; {hint}" if hint else ""
        raise TypeError(f"{what}: expected a tcim_lite.runtime.{kind.__name__}, got {type(value).__name__}{advice}")
    return value


def flag(value: Any, what: str) -> bool:
    """`value` as a bool; TypeError unless it is one, or an int. A RunOption given as `sync` would else be true."""
    if not isinstance(value, (bool, int, np.bool_)):
        raise TypeError(f"{what}: expected a bool, got {value!r:.200}")
    return bool(value)


def integer(value: Any, what: str) -> int:
    """`value` as an int of 64 bits; TypeError for another type (floats and bools too), ArgumentError out of range."""
    if isinstance(value, bool):
        raise TypeError(f"{what}: expected an int, got {value}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: expected an int, got {value!r:.200}") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise ArgumentError(f"{what}: {number} does not fit 64 bits")
    return number


def integers(values: Iterable[Any], what: str) -> list[int]:
    """`values` as ints; errors as `integer`."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{what}: expected a list of ints, got {values!r:.200}")
    return [integer(value, what) for value in values]


def text(value: Any, what: str) -> str:
    """`value`; TypeError unless it is a str, ArgumentError for half of a surrogate pair."""
    if not isinstance(value, str):
        raise TypeError(f"{what}={value!r:.200}: expected a str")
    if not _encodes(value):
        raise ArgumentError(f"{what}={value!r:.200}: half a surrogate pair is no character; expected text")
    return value


def texts(values: Iterable[Any], what: str, each: str) -> tuple[str, ...]:
    """`values` as strs; TypeError for a single one, errors of an item as `text`, which calls it `each`."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{what}={values!r:.200}: expected a list of {what}")
    return tuple(text(value, each) for value in values)


def _encodes(value: str) -> bool:
    if value.isascii():
        return True
    try:
        return bool(value.encode())
    except UnicodeEncodeError:
        return False


def port_name(name: Any) -> str:
    """`name`; TypeError unless it is a str, UnknownNameError if no input or output can have it."""
    if not isinstance(name, str):
        raise TypeError(f"name={name!r:.200}: expected the name of an input or output, a str")
    if len(name) > 4096 or not (name.isascii() or _encodes(name)):
        raise UnknownNameError(f"no input or output is named {name!r:.200}; the getters list the names")
    return name


def file_path(path: Any) -> bytes:
    """The path as the system takes it; any file name Python can express works."""
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise HmmFormatError(f"{path!r:.200}: a path cannot hold a NUL character; give the path of a .hmm")
    return encoded
