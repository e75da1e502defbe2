"""Stream: an order of execution."""

from __future__ import annotations

from typing import NoReturn

from tcim_lite import _core
from tcim_lite.marks import chosen
from tcim_lite.runtime.arguments import flag

__all__ = ["Stream"]


@chosen("6", "auto yield has no effect; modules without a stream share one per device", "Stream")
class Stream:
    """Work of one stream runs in order, work of different streams concurrently.

    Opaque; give it to `Module.set_stream`. No thread starts before the first run.
    """

    __slots__ = ("_core",)

    def __init__(self, auto_yield: bool = False) -> None:
        """A new stream.

        Args:
            auto_yield: accepted; has no effect on results.
        """
        self._core = _core.Stream.make(flag(auto_yield, "Stream: auto_yield"))

    @chosen("6", "a program for the xh1 calls it; no effect, as auto yield")
    def yield_(self) -> None:
        """Offers the device to other streams, for a stream without auto yield. Has no effect here."""

    def __repr__(self) -> str:
        return f"Stream({self._core.auto_yield})"

    def __copy__(self) -> Stream:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Stream cannot be pickled or copied deeply; make one in the process that uses it")
