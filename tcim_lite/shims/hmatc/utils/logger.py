"""What demos import as `from hmatc.utils import logger`: the methods of a `logging.Logger`, which prints to stdout.

The vendor's is the root logger with a handler and the level INFO, so messages of every library are printed. Here
the logger is one of its own, called hmatc, and the loggers of other libraries stay as they are.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

__all__ = ["critical", "debug", "error", "exception", "fatal", "info", "log", "warning"]


class _Stdout(logging.StreamHandler[Any]):
    """Writes to the `sys.stdout` of the moment, which notebooks and tests replace."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stdout

    @stream.setter
    def stream(self, stream: Any) -> None:
        raise AttributeError("this handler writes to sys.stdout; add a handler of your own to the logger 'hmatc'")


_LOGGER = logging.getLogger("hmatc")
if not _LOGGER.handlers:  # none of the program's, nor of an earlier import
    _HANDLER = _Stdout()
    _HANDLER.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    _LOGGER.addHandler(_HANDLER)
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False

debug, info, warning, error = _LOGGER.debug, _LOGGER.info, _LOGGER.warning, _LOGGER.error
critical, fatal, exception, log = _LOGGER.critical, _LOGGER.critical, _LOGGER.exception, _LOGGER.log


def __getattr__(name: str) -> Any:
    """All else that a `logging.Logger` has."""
    return getattr(_LOGGER, name)
