"""Exceptions and the status code of the runtime API."""

from __future__ import annotations

import enum

from tcim_lite.marks import chosen

__all__ = [
    "ArgumentError",
    "DeviceError",
    "HmmFormatError",
    "ShapeError",
    "StateError",
    "Status",
    "StrictError",
    "TcimError",
    "UnknownNameError",
    "UnsupportedError",
]


class NamedIntEnum(enum.IntEnum):
    """Prints as "Status.OK", as in the vendor's texts. IntEnum prints a number from Python 3.11 on."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec[-1:] in tuple("bcdoxXn") else format(str(self), spec)


@chosen("10", "values other than OK are the emulator's", "Status")
class Status(NamedIntEnum):
    """Result of a call. Members are appended, never renumbered; nothing here returns those after UNSUPPORTED."""

    ERR_UNDEFINED = -1
    OK = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    UNSUPPORTED = 3
    OUT_OF_RANGE = 4
    ALREADY_EXISTS = 5
    PERMISSION_DENIED = 6
    UNAVAILABLE = 7
    UNAUTHENTICATED = 8
    RESOURCE_EXHAUSTED = 9
    TIMEOUT = 10
    ERR_KERNEL = 11
    ERR_FATAL = 12
    SESSION_EXPIRED = 13
    RECOVERING = 14


@chosen("10", "classes of errors are the emulator's; the vendor's documentation names RuntimeError")
class TcimError(RuntimeError):
    """A failed operation.

    Attributes:
        status: the status code that the C++ API would have returned.
    """

    status: Status = Status.ERR_UNDEFINED

    def __init__(self, message: str = "", status: Status | None = None) -> None:
        super().__init__(message)
        if status is not None:
            self.status = Status(status)


@chosen("10", "catch RuntimeError for both runtimes")
class HmmFormatError(TcimError, ValueError):
    """A `.hmm` or `.hmw` file that is damaged, foreign, incomplete or too new."""


@chosen("10", "catch RuntimeError for both runtimes")
class StateError(TcimError):
    """An unbound dummy input at `run`, or the use of a released object."""

    status = Status.UNINITIALIZED


@chosen("10", "catch RuntimeError for both runtimes")
class ArgumentError(TcimError, ValueError):
    """A value out of range."""

    status = Status.INVALID_ARGUMENT


@chosen("10", "catch RuntimeError for both runtimes")
class ShapeError(TcimError, ValueError):
    """An element count or a dtype that does not fit."""

    status = Status.INVALID_ARGUMENT


@chosen("10", "catch RuntimeError for both runtimes")
class UnknownNameError(TcimError, KeyError):
    """An input or output name that the module does not have."""

    status = Status.INVALID_ARGUMENT

    # KeyError would print the message as a repr.
    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


@chosen("10", "catch RuntimeError for both runtimes")
class DeviceError(TcimError):
    """A bad device id, no memory left, or a failed launch."""


@chosen("10", "catch RuntimeError for both runtimes")
class UnsupportedError(TcimError, NotImplementedError):
    """Something recognised that this emulator does not emulate."""

    status = Status.UNSUPPORTED


class StrictError(TcimError):
    """A finding of strict mode (`TCIM_LITE_STRICT=error`). Extra: not in the vendor's API.

    Attributes:
        code: of the finding, such as "S-101"; `tcim-lite explain S-101` says more.
        status: of the failure it tells of; `ERR_UNDEFINED` if the call succeeds without strict mode.
    """

    @property
    def code(self) -> str:
        return str(self).partition(":")[0]
