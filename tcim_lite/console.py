"""How a program at a terminal ends: when it is interrupted, with one line and status 130, at once."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

GRACE_S = 0.25
INTERRUPTED = 130


def run_main(main: Callable[[], int | None]) -> NoReturn:
    """Runs a program's `main` and exits with its status, 0 for None.

    Ctrl-C raises KeyboardInterrupt as ever, so that `main` can clean up; then the process ends with status 130 and the
    line "interrupted". After a quarter of a second it ends in any case: a library may be busy for seconds before it
    gives Python a chance to raise. Work of the device that is still running is given up. Where nobody reads the output
    on, as in `tcim-lite inspect ... | head`, the process ends with status 1.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  to the end
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and out.errors == "strict":  # a name or an answer may have any character
        out.reconfigure(errors="backslashreplace")
    told = threading.Semaphore()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(target=_end_soon, args=(reader, told), daemon=True).start()
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        status = 1
    except KeyboardInterrupt:
        _tell(told)
        atexit._run_exitfuncs()
        # Not sys.exit: an interrupt that went through C code which runs Python makes it end by the signal instead.
        os._exit(INTERRUPTED)
    sys.exit(status)


def run_program(main: Callable[[], None]) -> NoReturn:
    """As `run_main`; what is wrong with what the program was given is one line, `error: ...`, and status 1."""

    def told() -> None:
        try:
            main()
        except (OSError, ValueError, ImportError, RuntimeError) as error:
            sys.exit(f"error: {error}")

    run_main(told)


def take_interrupts(handler: Callable[[int, FrameType | None], None]) -> None:
    """From now on Ctrl-C calls `handler`, as `signal.signal` has it, and no longer ends the program by itself."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, handler)


def _end_soon(pipe: int, told: threading.Semaphore) -> None:
    """Waits for the byte that Python's handler writes when the signal comes, long before it can raise anything."""
    while os.read(pipe, 1) != bytes([signal.SIGINT]):
        pass
    time.sleep(GRACE_S)
    _tell(told)
    os._exit(INTERRUPTED)


def _tell(told: threading.Semaphore) -> None:
    """Prints the line, of two threads that come here once."""
    if told.acquire(blocking=False):
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # closed, or in use by the other thread
            sys.stdout.flush()
        os.write(2, b"interrupted\n")
