"""Runs Python programs as `subprocess` does, but in copies of a process that waits for them.

It has imported numpy, transformers and what servers need, which takes longer than most programs do. It has not imported
tcim_lite, which reads its environment when it is imported.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

_OF_PYTHON = set(sys.modules)  # what a program's end needs

# Keeps a started Python from importing what lies in its folder; before 3.11 with variables for the interpreter.
ISOLATED = "-P" if sys.version_info >= (3, 11) else "-I"


def run(
    *words: object,
    input: str | bytes | None = None,
    env: dict[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Runs a script, a module after "-m" or a text after "-c", with its arguments.

    Variables for the interpreter itself change nothing.

    Raises:
        subprocess.TimeoutExpired: It takes longer than `timeout` seconds, and has been killed.
    """
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(input if isinstance(input, bytes) else (input or "").encode())
        files[0].seek(0)
        with _Copy(words, files, env, cwd) as copy:
            try:
                copy.wait(timeout)
            finally:
                copy.kill()
        texts = []
        for file in files[1:]:
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(copy.args, copy.returncode, *texts)


class _Copy:
    """A copy that runs a program.

    Attributes:
        args: The words of its command line.
        pid: of the copy.
        returncode: None until `wait` or `poll` has seen its end.
    """

    def __init__(
        self,
        words: tuple[object, ...],
        files: list[IO[Any]],
        env: dict[str, str] | None,
        cwd: str | Path | None,
        new_session: bool = False,
    ):
        self.args = [str(word) for word in words]
        self.returncode: int | None = None
        self._told, theirs = socket.socketpair()
        job = {"words": self.args, "env": {**os.environ} if env is None else env, "cwd": str(cwd or Path.cwd())}
        with theirs, tempfile.TemporaryFile() as written:
            written.write(json.dumps(job | {"session": new_session}).encode())
            written.seek(0)
            _send(_waiting(), [written.fileno(), theirs.fileno(), *(file.fileno() for file in files)])
        self._lines = self._told.makefile("r")
        self.pid = int(self._lines.readline())

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._lines.readline())
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Waits for its end."""
        self.wait()
        self._lines.close()
        self._told.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Popen(_Copy):
    """As subprocess.Popen with three pipes of text."""

    def __init__(
        self,
        *words: object,
        env: dict[str, str] | None = None,
        cwd: str | Path | None = None,
        start_new_session: bool = False,
    ):
        with contextlib.ExitStack() as theirs:
            ends = [os.pipe() for _ in range(3)]
            files = [
                theirs.enter_context(os.fdopen(ends[0][0], "rb", 0)),
                *(theirs.enter_context(os.fdopen(end, "wb", 0)) for _, end in ends[1:]),
            ]
            self.stdin = os.fdopen(ends[0][1], "w", encoding="utf-8")
            self.stdout, self.stderr = (os.fdopen(end, encoding="utf-8") for end, _ in ends[1:])
            super().__init__(words, files, env, cwd, start_new_session)

    def communicate(self, input: str = "", timeout: float | None = None) -> tuple[str, str]:
        texts = ["", ""]

        def read(index: int, file: IO[str]) -> None:
            texts[index] = file.read()

        readers = [threading.Thread(target=read, args=item) for item in enumerate((self.stdout, self.stderr))]
        for reader in readers:
            reader.start()
        with contextlib.suppress(BrokenPipeError), self.stdin:
            self.stdin.write(input)
        try:
            self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            for reader in readers:
                reader.join()
        return texts[0], texts[1]

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        super().close()
        self.stdout.close()
        self.stderr.close()


@functools.cache
def _waiting() -> socket.socket:
    """Where the process that waits takes its jobs: every message has the descriptors of one."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, ISOLATED, __file__, str(theirs.fileno())]
        # In a session of its own: Ctrl-C is for the tests.
        process = subprocess.Popen(command, cwd="/", pass_fds=[theirs.fileno()], start_new_session=True)

    def end() -> None:
        mine.close()
        process.wait()

    atexit.register(end)
    return mine


def _send(jobs: socket.socket, files: list[int]) -> None:
    jobs.sendmsg([b"j"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])


def _serve(jobs: socket.socket) -> None:
    """Copies this process for each job, and tells the id and the status of the copy; returns in the copies."""
    served = ("llguidance", "msgspec", "prometheus_client", "starlette.applications", "uvicorn")
    for name in ("numpy", "onnx", "pytest", "transformers.tokenization_utils_tokenizers", *served):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # copies that look at these objects would copy their pages, which takes longer than all else here
    imported = set(sys.modules) - _OF_PYTHON
    for name in imported:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(sys.modules[name]))
    atexit.register(_forget, imported)  # before the program's own, so it is called last
    ended, ends = os.pipe()
    os.set_blocking(ends, False)
    signal.set_wakeup_fd(ends)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    copies: dict[int, socket.socket] = {}
    while True:
        if ended in select.select([jobs, ended], [], [])[0]:
            os.read(ended, 4096)
            for child in list(copies):
                if (found := os.waitpid(child, os.WNOHANG))[0]:
                    _tell(copies[child], os.waitstatus_to_exitcode(found[1]))
                    copies.pop(child).close()
            continue
        message, files, *_ = socket.recv_fds(jobs, 1, 5)
        if not message:  # the tests have ended, or were killed
            for child in copies:
                os.kill(child, signal.SIGKILL)
            os._exit(0)
        if (child := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for file in (jobs, *copies.values()):
                file.close()
            os.close(ended)
            os.close(ends)
            _become(*files)
            return
        for file in (files[0], *files[2:]):
            os.close(file)
        copies[child] = socket.socket(fileno=files[1])
        _tell(copies[child], child)


def _forget(names: set[str]) -> None:
    """Leaves modules that came with the copy as they are: their end would copy their pages, too."""
    for name in names:
        sys.modules.pop(name, None)


def _tell(copy: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody waits for it
        copy.sendall(f"{number}\n".encode())


def _become(written: int, told: int, *files: int) -> None:
    """Makes this process what the job says, up to the program itself."""
    os.close(told)
    with open(written, "rb") as read:
        job = json.load(read)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    if job["session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(job["env"])
    os.chdir(job["cwd"])
    if process := sys.modules.get("multiprocessing.process"):
        process.ORIGINAL_DIR = job["cwd"]  # where a process that it spawns looks for a program with a relative path
    words = job["words"]
    sys.argv = words[1:] if words[0] == "-m" else words
    if "PYTHONUNBUFFERED" in job["env"]:
        sys.stdout.reconfigure(line_buffering=True)


def _main() -> None:
    _serve(socket.socket(fileno=int(sys.argv[1])))
    is_text, is_file = sys.argv[0] == "-c", sys.argv[0].endswith(".py")
    if not (is_text or is_file):
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    # Not by runpy, which would empty the module before the interpreter ends.
    program, name = (sys.argv.pop(1), "<string>") if is_text else (Path(sys.argv[0]).read_bytes(), sys.argv[0])
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    if is_file:
        module.__file__ = name
        sys.path.insert(0, str(Path(name).resolve().parent))
    exec(compile(program, name, "exec"), module.__dict__)


if __name__ == "__main__":
    _main()
