"""Runs groups of cases in child processes, watches them, and tells flaky from failing."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .expectations import explains, wording
from .registry import Case
from .results import BAD, CRASHED, FLAKY, HUNG, NOT_RUN, PASSED, UNEXPECTED, WAIVED, Result

MAIN = Path(__file__).parent / "__main__.py"
START_SECONDS = 60.0  # for a child to import the runtime
EXITS = "the process exits "
KEPT = 6000  # characters of what a child printed


class UnusableRuntimeError(Exception):
    """The runtime under test could not even be asked for its version."""


@dataclass
class Settings:
    """How to run."""

    runtime: str
    models: Path
    sdk: Path | None = None
    strict: bool = False
    jobs: int = 1
    patience: float = 1.0  # factor on every case's time limit


class Runner:
    """Runs cases; one object per run."""

    def __init__(self, settings: Settings, report: Callable[[Result], None]) -> None:
        """`report` is called once per case, from several threads one at a time."""
        self._settings = settings
        self._report = report
        self._lock = threading.Lock()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def probe(self) -> dict[str, Any]:
        """What the runtime says about itself.

        Raises:
            UnusableRuntimeError: it cannot be imported, crashes, or hangs.
        """
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            child = _Child(self, "PROBE", Path(folder))
            event = child.next_event(START_SECONDS * max(1.0, self._settings.patience))
            how = child.end()
            if event is None:
                how = how or f"it said nothing for {START_SECONDS:.0f} s"
                raise UnusableRuntimeError(
                    f"{self._settings.runtime} cannot be used: {how}\n{child.printed()}".rstrip()
                )
            return event

    def run(self, cases: Iterable[Case], waivers: dict[str, str]) -> list[Result]:
        """Runs the cases, groups side by side, and returns their results in the order of the cases."""
        cases = list(cases)
        groups: dict[str, list[Case]] = {}
        for case in cases:
            groups.setdefault(case.group, []).append(case)
        results: dict[str, Result] = {}

        with tempfile.TemporaryDirectory(prefix="conformance-") as shared:

            def run_group(group: list[Case]) -> None:
                for case in group:
                    results[case.id] = _result(case, NOT_RUN, "interrupted")
                left = group
                while left and not self._stopped:
                    done = self._run_until_one_is_bad(left, Path(shared))
                    left = left[len(done) :]
                    if self._stopped:
                        return
                    for result in done:
                        self._settle(result, group, Path(shared), waivers)
                        results[result.id] = result
                        with self._lock:
                            self._report(result)

            pool = ThreadPoolExecutor(self._settings.jobs)
            try:
                list(pool.map(run_group, groups.values()))
            finally:
                self._stopped = True
                for process in list(self._children):
                    _kill(process)
                pool.shutdown()
        return [results[case.id] for case in cases]

    def _settle(self, result: Result, group: list[Case], shared: Path, waivers: dict[str, str]) -> None:
        """Runs a bad case once more, and applies its waiver."""
        if result.outcome in BAD and not self._stopped:
            case = next(case for case in group if case.id == result.id)
            again = self._run_until_one_is_bad([case], shared)
            if again and again[0].outcome == PASSED:
                result.detail = f"{result.outcome} first, passed when run again:\n{result.detail}"
                result.outcome = FLAKY
        reason = waivers.get(result.id)
        if reason is not None and result.outcome in BAD and explains(reason, result.detail):
            result.detail = f"waived: {wording(reason)}\n\n{result.outcome}: {result.detail}"
            result.outcome = WAIVED
        elif reason is not None and result.outcome == PASSED:
            result.detail = f"waived: {wording(reason)}"
            result.outcome = UNEXPECTED

    def _run_until_one_is_bad(self, cases: list[Case], shared: Path) -> list[Result]:
        """Results of the first cases; of a case that crashed or hung too, which is then the last."""
        done: list[Result] = []
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            child = _Child(self, [case.id for case in cases], Path(folder), shared)
            for case in cases:
                limit = case.seconds * self._settings.patience
                begin = time.perf_counter()
                started = child.next_event(START_SECONDS * max(1.0, self._settings.patience))
                ended = child.next_event(limit) if started is not None else None
                result = _result(case, CRASHED)
                done.append(result)
                if ended is not None:
                    for name in ("outcome", "seconds", "detail", "measured"):
                        setattr(result, name, ended[name])
                    if result.outcome in BAD:
                        result.detail += _section("printed", child.printed())
                    continue
                result.seconds = time.perf_counter() - begin
                how = child.end()
                if how is None:
                    result.outcome, how = HUNG, f"no end after {limit:.0f} s; the child was killed"
                result.detail = how + _section("printed", child.printed())
                return done
            how = child.end(START_SECONDS * max(1.0, self._settings.patience))
            if how != f"{EXITS}0" and done[-1].outcome == PASSED:
                done[-1].outcome = CRASHED if how else HUNG
                done[-1].detail = f"after this case, the last of its process: {how or 'the process did not end'}"
                done[-1].detail += _section("printed", child.printed())
        return done


class _Child:
    """A process that runs worker.main, in a session of its own so that nothing it starts survives it."""

    def __init__(self, runner: Runner, job: str | list[str], folder: Path, shared: Path | None = None) -> None:
        self._runner = runner
        settings = runner._settings
        if not isinstance(job, str):
            path = folder / "job.json"
            sdk = str(settings.sdk) if settings.sdk else None
            text = {"cases": job, "models": str(settings.models), "sdk": sdk, "shared": str(shared)}
            path.write_text(json.dumps(text), encoding="utf-8")
            job = str(path)
        reader, writer = os.pipe()
        self._printed = folder / "printed"
        environment = {**os.environ, "TCIM_CONFORMANCE_RUNTIME": settings.runtime, "PYTHONIOENCODING": "utf-8"}
        environment |= {"TCIM_LITE_STRICT": "error"} if settings.strict else {}
        environment["TMPDIR"] = str(folder)  # so that a case which is killed leaves no files behind
        # Not in the folder of the caller, whose modules might shadow what is installed.
        with self._printed.open("wb") as printed:
            self._process = subprocess.Popen(
                [sys.executable, str(MAIN), "--worker", job, str(writer)],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
                pass_fds=[writer],
                start_new_session=True,
            )
        os.close(writer)
        runner._children.add(self._process)
        if runner._stopped:  # too late to be among those that were ended
            _kill(self._process)
        self._pipe = reader
        self._selector = selectors.DefaultSelector()
        self._selector.register(reader, selectors.EVENT_READ)
        self._text = b""
        self._closed = False

    def next_event(self, seconds: float) -> dict[str, Any] | None:
        """The next line of the child, or None when it ended or was silent for so long."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._text:
            # Woken up to look whether the child is gone: its own children may hold the pipe open. First the look, then
            # the pipe, so that what it said last is heard.
            gone = self._process.poll() is not None
            ready = self._selector.select(0 if gone else min(0.2, max(0.0, deadline - time.monotonic())))
            if ready:
                received = os.read(self._pipe, 1 << 16)
                if not received:
                    self._closed = True
                    return None
                self._text += received
            elif gone or time.monotonic() >= deadline:
                return None
        line, _, self._text = self._text.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    def end(self, seconds: float | None = None) -> str | None:
        """Ends the child; says how it ended, None when it had to be killed."""
        status: int | None
        try:
            status = self._process.wait(seconds or (5 if self._closed else 0.2))
        except subprocess.TimeoutExpired:
            status = None
        _kill(self._process)
        self._runner._children.discard(self._process)
        self._selector.close()
        os.close(self._pipe)
        if status is None:
            return None
        return f"the process was ended by {signal.Signals(-status).name}" if status < 0 else f"{EXITS}{status}"

    def printed(self) -> str:
        """The end of what it printed."""
        return self._printed.read_text(encoding="utf-8", errors="replace")[-KEPT:].strip()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and everything in its session's group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _result(case: Case, outcome: str, detail: str = "") -> Result:
    return Result(case.id, case.title, case.tier, case.corner, outcome, detail=detail)


def _section(title: str, text: str) -> str:
    return f"\n--- {title} ---\n{text}" if text else ""
