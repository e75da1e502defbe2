"""Checks of options whose wrong type would show far from where they were given, or never, such as 1.5 tokens."""

from __future__ import annotations

from numbers import Integral, Real


def check_numbers(**given: object) -> None:
    """Each is a number.

    Raises:
        TypeError: One is something else; the message has its name.
    """
    _check(Real, "a number", given)


def check_whole(**given: object) -> None:
    """Each is a whole number.

    Raises:
        TypeError: As `check_numbers`.
    """
    _check(Integral, "a whole number", given)


def _check(kind: type, title: str, given: dict[str, object]) -> None:
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, kind):
            raise TypeError(f"{name}={value!r:.80}: expected {title}")
