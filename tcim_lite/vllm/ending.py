"""A process ends with the one that started it, which may be killed and then cannot tell."""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import os
import threading
import time


def end_with_starters() -> None:
    """Ends this process, at once, when the process that started it ends, or the server above an engine does.

    vLLM starts a server, it starts an engine, and that starts workers. Nothing in an engine whose workers are processes
    watches the server, so a worker does: the engine ends with its workers. Does nothing in a process that
    `multiprocessing` did not start.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    threading.Thread(target=_end_after_join, args=(parent,), name="tcim-lite-parent", daemon=True).start()
    # Above anything but an engine are processes that may well end before, such as a shell.
    if parent.name.startswith("EngineCore") and parent.pid is not None and (server := _parent_of(parent.pid)):
        _watch(parent.pid, server)


def end_coordinator_with_server() -> None:
    """Has vLLM's coordinator of replicas end with its server, if that is this process or one to be forked from it.

    It runs nothing of a platform's, and nothing else ends it when the server was killed.
    """
    _watch_as_coordinator()
    multiprocessing.util.register_after_fork(_watch_as_coordinator, lambda watch: watch())


def _watch_as_coordinator() -> None:
    if multiprocessing.current_process().name == "VLLM_DP_Coordinator":
        _watch(os.getpid(), os.getppid())  # `multiprocessing` knows no parent yet while a spawned process imports


def _watch(child: int, parent: int) -> None:
    """Ends this process when that child loses its parent."""
    threading.Thread(target=_end_when_orphaned, args=(child, parent), name="tcim-lite-server", daemon=True).start()


def _end_after_join(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _end_when_orphaned(child: int, parent: int) -> None:
    while _parent_of(child) == parent:
        time.sleep(0.5)
    os._exit(1)


def _parent_of(pid: int) -> int:
    """0 where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0
