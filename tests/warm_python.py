"""Runs Python programs as `subprocess.run([sys.executable, ...])` does, but in copies of a process that waits for them.

It has imported numpy and transformers, which takes longer than most programs do. It has not imported tcim_lite, which
reads its environment when it is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def run(
    *words: object,
    input: str | None = None,
    env: dict[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Runs a script, or a module after "-m", with its arguments; variables for the interpreter itself change nothing.

    Raises:
        subprocess.TimeoutExpired: It takes longer than `timeout` seconds, and has been killed.
    """
    command = [str(word) for word in words]
    with contextlib.ExitStack() as files:
        given, printed, errors = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write((input or "").encode())
        given.seek(0)
        job = {"words": command, "env": {**os.environ} if env is None else env, "cwd": str(cwd or Path.cwd())}
        paths = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (given, printed, errors)]
        status = _waiting().run(job | {"files": paths}, timeout)
        texts = []
        for file in (printed, errors):
            file.seek(0)
            texts.append(file.read().decode())
    if status is None:
        raise subprocess.TimeoutExpired(command, timeout, *texts)
    return subprocess.CompletedProcess(command, status, *texts)


class _Waiting:
    """This end of the process that waits."""

    def __init__(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen([sys.executable, "-P", __file__], text=True, cwd="/", **pipes)
        atexit.register(self._process.communicate)  # ends it: it waits for the end of its input

    def run(self, job: dict[str, Any], timeout: float) -> int | None:
        """The exit status of a copy that does the job; None if it had to be killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job | {"timeout": timeout}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@functools.cache
def _waiting() -> _Waiting:
    return _Waiting()


def _serve() -> None:
    """Copies this process for each job; returns in the copies."""
    import numpy
    from transformers import PreTrainedTokenizerFast

    del numpy, PreTrainedTokenizerFast
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(job)
            return
        signal.signal(signal.SIGALRM, lambda *_, child=child: os.kill(child, signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, job["timeout"])
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        late = signal.setitimer(signal.ITIMER_REAL, 0)[0] == 0
        print(json.dumps(None if late else status), flush=True)
    os._exit(0)


def _become(job: dict[str, Any]) -> None:
    """Makes this process what the job says, up to the program itself."""
    for number, path in enumerate(job["files"]):
        file = os.open(path, os.O_RDWR)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(job["env"])
    os.chdir(job["cwd"])
    words = job["words"]
    sys.argv = words[1:] if words[0] == "-m" else words


if __name__ == "__main__":
    _serve()
    if sys.argv[0].endswith(".py"):
        sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
