"""Marks of public names: how each relates to the vendor's API. What is marked stays as it is.

`reader.py` finds the marks in the sources. docs/api-status.md lists them, with what has no place for a mark: names of
C++ alone, modules, and what is missing (`portcheck/table.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["chosen", "exact", "extension"]

T = TypeVar("T")


def exact(section: str, cpp: str = "", /) -> Callable[[T], T]:
    """The contract says what it does, and it does that.

    Args:
        section: Of the contract.
        cpp: The name that C++ has for it, in `tcim::`.
    """
    return _unchanged


def chosen(section: str, choice: str, cpp: str = "", /) -> Callable[[T], T]:
    """The contract is silent on a point, or has it from the vendor's stand-in adapter only.

    Args:
        section: Of the contract.
        choice: What the emulator does.
        cpp: The name that C++ has for it, in `tcim::`.
    """
    return _unchanged


def extension(instead: str, cpp: str = "", /) -> Callable[[T], T]:
    """The emulator's alone: a program that uses it does not run on the card as it stands.

    Args:
        instead: What to do for the card.
        cpp: The name that C++ has for it, in `tcim::`.
    """
    return _unchanged


def _unchanged(item: T) -> T:
    return item
