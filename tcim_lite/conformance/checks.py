"""What cases check with."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from . import under_test


class NotRunError(Exception):
    """The case cannot be run here; the message says why."""


class Refusal:
    """The exception of a refused call."""

    value: Exception | None = None


@contextmanager
def refused(kind: str = "RuntimeError", words: str = "", status: str = "") -> Iterator[Refusal]:
    """The body has to raise.

    Of the emulator: an instance of `kind`, a built-in or a class of the runtime, whose message has a match of the
    pattern `words` and whose status is `status`. Which class and words the vendor's runtime uses is not
    known, so another runtime may raise any RuntimeError, ValueError, TypeError or KeyError.
    """
    refusal = Refusal()
    try:
        yield refusal
    except (AssertionError, NotRunError):
        raise
    except Exception as raised:
        refusal.value = raised
    error: Any = refusal.value
    assert error is not None, f"nothing was refused; expected {kind}: {words}"
    if not under_test.is_emulator():
        assert isinstance(error, RuntimeError | ValueError | TypeError | KeyError), f"refused by {error!r}"
        return
    expected = getattr(builtins, kind, None) or getattr(under_test, kind)
    assert isinstance(error, expected), f"expected {kind}, got {error!r}"
    assert re.search(words, str(error)), f"expected words like {words!r}, got {error!r}"
    if status:
        assert error.status == getattr(under_test.Status, status), f"status {error.status}, expected {status}"


def same_rows(found: Any, expected: Any) -> None:
    """Rows that were computed in other pieces, such as by prefill and by decode.

    Equal bit for bit of the emulator on a CPU; elsewhere each within 4e-2 of what is expected in the Euclidean norm,
    the bound of a quantised layer (docs/cuda.md). Rows of other tokens are further apart than 1.
    """
    if under_test.emulates_on_cpu():
        np.testing.assert_array_equal(found, expected)
        return
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape, f"shape {found.shape}, expected {expected.shape}"
    apart, most = (np.linalg.norm(rows, axis=-1) for rows in (found - expected, 4e-2 * expected))
    assert (apart <= most).all(), f"rows are {(apart / np.maximum(most, 1e-30)).max():.3g} times the bound apart"


def set_input_binds() -> bool:
    """Whether set_input binds a device tensor to an input that is no dummy (section 7.2)."""
    return under_test.api_version() >= (1, 4)


def bind(module: Any, name: str, tensor: Any) -> None:
    """Binds a device tensor to an input that need not be a dummy: through set_input where this version does that."""
    (module.set_input if set_input_binds() else module.set_dev_input)(name, tensor)


def emulator_only(what: str) -> None:
    """Ends a case as not run unless the emulator is under test; `what` is the choice it made."""
    if not under_test.is_emulator():
        raise NotRunError(f"the emulator's choice, open for the vendor's runtime: {what}")
