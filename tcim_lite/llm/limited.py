"""Work that a package's own files direct, such as its chat template, within limits of time, memory and output."""

from __future__ import annotations

import array
import faulthandler
import os
import resource
import select
import signal
import threading
import time
import warnings
from collections.abc import Callable
from typing import NoReturn

from ..own_process import limit_resource

SECONDS = 10.0
MEMORY_BYTES = 512 << 20
OUTPUT_BYTES = 64 << 20


class LimitedWorkError(ValueError):
    """The work failed or went beyond a limit; the message is one line."""


def run_limited(work: Callable[[], list[int]]) -> list[int]:
    """What `work()` returns, computed in a forked child.

    A template can ask for any time and memory in a single operation (`10 ** (10 ** 10)`), which nothing in this process
    could stop. The child gets ten seconds, 512 MiB above what is in use, and 64 MiB of output.

    Raises:
        LimitedWorkError: `work` raised, or went beyond a limit.
    """
    reader, writer = os.pipe()
    interrupted: list[int] = []
    child = _fork(interrupted)
    if child == 0:
        _run_in_child(work, writer)
    os.close(writer)
    try:
        if interrupted:
            signal.raise_signal(signal.SIGINT)
        answer = _read(reader, time.monotonic() + SECONDS)
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if answer is None:
        raise LimitedWorkError(f"takes longer than {SECONDS:g} s")
    if len(answer) > OUTPUT_BYTES:
        raise LimitedWorkError(f"makes more than {OUTPUT_BYTES >> 20} MiB")
    if not answer:
        raise LimitedWorkError("crashed")
    kind, value = answer[:1], answer[1:]
    if kind == b"e":
        raise LimitedWorkError(value.decode("utf-8", "replace"))
    return memoryview(value).cast("q").tolist()


def _fork(interrupted: list[int]) -> int:
    """`os.fork`; a Ctrl-C meanwhile goes into `interrupted`, because hooks of Python's would print and forget it."""
    handler = signal.getsignal(signal.SIGINT)
    is_mine = threading.current_thread() is threading.main_thread() and handler is not None
    if is_mine:
        signal.signal(signal.SIGINT, lambda number, _: interrupted.append(number))
    try:
        with warnings.catch_warnings():
            # Python warns of locks that other threads hold; a child that waits for one ends at its limit.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0 and is_mine:
            handler = signal.SIG_IGN  # the parent is told, and ends the child
        return child
    finally:
        if is_mine:
            signal.signal(signal.SIGINT, handler)


def one_line(error: BaseException) -> str:
    """What an error of a library says, in one line of bounded length without control characters."""
    text = " ".join(str(error).split()) or "no reason given"
    text = "".join(char if char.isprintable() else "?" for char in text)
    return f"{type(error).__name__}: {text[:300]}{'...' if len(text) > 300 else ''}"


def _read(pipe: int, deadline: float) -> bytes | None:
    """All that comes, but not much more than OUTPUT_BYTES; None if the end does not come in time."""
    parts, size = [], 0
    while size <= OUTPUT_BYTES:
        if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return None
        part = os.read(pipe, 1 << 20)
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _run_in_child(work: Callable[[], list[int]], pipe: int) -> NoReturn:
    """Writes the answer and exits, whatever happens; nothing may return into the copy of the caller."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 2)  # libraries remark on what is about to be one line
        faulthandler.disable()  # a Rust library that gets no memory aborts
        limit_resource(resource.RLIMIT_CORE, 0)
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[0])
        memory = pages * os.sysconf("SC_PAGESIZE") + MEMORY_BYTES
        limit_resource(resource.RLIMIT_AS, memory)
        limit_resource(resource.RLIMIT_CPU, int(SECONDS) + 1)  # if the parent is killed
        answer = b"i" + array.array("q", work()).tobytes()
    except MemoryError:
        answer = f"eneeds more than {MEMORY_BYTES >> 20} MiB of memory".encode()
    except BaseException as error:  # a Rust panic is no Exception
        answer = b"e" + one_line(error).encode("utf-8", "replace")
    try:
        view = memoryview(answer)
        while view:
            view = view[os.write(pipe, view) :]
    finally:
        os._exit(0)
