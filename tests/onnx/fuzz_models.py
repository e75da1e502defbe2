"""Fuzzes the ONNX front end with damaged models: `make fuzz`, docs/developing.md.

    python tests/onnx/fuzz_models.py [--runs N] [--jobs N] [--seed N]

Each input is a node case of onnx.backend.test, changed by its own number: in its bytes, or in its fields (ops,
names, attributes, shapes, constants, domains, external data). The compiler has to take it or refuse it with an
error of ours that is a short text; what it takes is loaded and, if it is small, run. Anything else is a finding, and a
file of its own.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from types import FrameType

import numpy as np
import onnx
from damaged_models import mutated, seeds

from tcim_lite.errors import TcimError, UnsupportedError
from tcim_lite.hmm import read
from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.models.onnx.compile import QUANTS, OnnxOptions, check_onnx
from tcim_lite.runtime import Module

FOLDER = Path(__file__).parents[2] / "build/fuzz_onnx"
_SECONDS = 20  # of a processor, for one input
_WAIT_SECONDS = 200  # for one input on a busy machine
_MEMORY = 6 << 30  # address space of a job
_MOST_RUN_BYTES = 1 << 20  # of the values of a graph that is run
_LONGEST_MESSAGE = 3000


class TooSlowError(Exception):
    """An input took longer than `_SECONDS`."""


def judge(number: int, folder: Path) -> str:
    """Compiles, loads and runs an input; "refused", "loaded" or "ran". `folder` is where its files would be.

    Raises:
        Exception: Anything that a user of the compiler must not see: a finding.
    """
    model = mutated(number)
    rng = random.Random(-number - 1)
    quant, supported = rng.choice(QUANTS), None
    try:
        if isinstance(model, bytes):
            model, supported = _parsed(model, quant, folder)
        data = onnx_bytes(model, quant, folder=folder)
    except TcimError as error:
        if supported:
            raise AssertionError(f"--check found nothing: {str(error)[:200]}") from error
        if len(str(error)) > _LONGEST_MESSAGE or not str(error).strip():
            raise AssertionError(f"a message of {len(str(error))} characters: {str(error)[:200]}") from error
        return "refused"
    if supported is False:
        raise AssertionError("--check refused a model that compiles")
    try:
        module = Module.load(data)
        values = read(data).graphs[0].values
        if sum(int(np.prod(value.shape, dtype=np.float64)) * 4 for value in values) > _MOST_RUN_BYTES:
            return "loaded"
        for index in range(module.get_num_inputs()):
            info = module.get_input_info(module.get_input_name(index))
            module.set_input(info.name, np.ones(info.shape, info.dtype))
        module.run(sync=True)
    except TcimError as error:
        # Memory that is not there, what the planner has no step for, and indices that a run finds out of range.
        if not isinstance(error, UnsupportedError) and not any(
            text in str(error) for text in ("memory", "allocate", "out of range", "index")
        ):
            raise
        return "loaded"
    return "ran"


def _parsed(data: bytes, quant: str, folder: Path) -> tuple[onnx.ModelProto, bool]:
    """The bytes by way of a file, as the command reads them, and whether a check of it found all supported."""
    path = folder / f"input_{os.getpid()}.onnx"
    path.write_bytes(data)
    found = check_onnx(OnnxOptions(model=path, quant=quant))
    return onnx.load(path, load_external_data=False), not found.missing


def fuzz(first: int, count: int, folder: Path) -> Counter[str]:
    """Judges inputs first .. first + count - 1 in this process; what is found becomes files in `folder`."""

    def expired(_: int, frame: FrameType | None) -> None:
        raise TooSlowError(f"more than {_SECONDS} s of a processor, or {_WAIT_SECONDS} s")

    signal.signal(signal.SIGALRM, expired)
    signal.signal(signal.SIGPROF, expired)
    seeds()
    seen: Counter[str] = Counter()
    current = folder / f"current_{first}"
    with current.open("w+b", buffering=0) as note, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(first, first + count):
            note.seek(0)
            note.write(b"%020d" % number)
            signal.alarm(_WAIT_SECONDS)
            signal.setitimer(signal.ITIMER_PROF, _SECONDS)
            try:
                seen[judge(number, folder)] += 1
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                seen["found"] += 1
                (folder / f"finding_{number}.txt").write_text(f"{type(error).__name__}: {error}"[:4000] + "\n")
                print(f"finding {number}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            finally:
                signal.alarm(0)
                signal.setitimer(signal.ITIMER_PROF, 0)
    current.unlink()
    return seen


def main() -> int:
    """Runs jobs; status 1 if something is found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes (default: the CPUs)")
    parser.add_argument("--seed", type=int, default=0, help="number of the first input")
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    if args.job:
        faulthandler.enable()
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        for verdict, count in fuzz(args.seed, args.runs, FOLDER).items():
            print(f"total {verdict} {count}", flush=True)
        return 0
    begin, share = time.perf_counter(), -(-args.runs // args.jobs)
    environment = os.environ | {"TCIM_LITE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    jobs = []
    for first in range(args.seed, args.seed + args.runs, share):
        command = [sys.executable, __file__, "--job", "--seed", str(first), "--runs", str(share)]
        jobs.append((first, subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)))
    total: Counter[str] = Counter()
    for first, process in jobs:
        for line in process.communicate()[0].splitlines():
            if line.startswith("total "):
                total[line.split()[1]] += int(line.split()[2])
            else:
                print(line)
        if process.returncode:
            at = (FOLDER / f"current_{first}").read_text()
            print(f"a process ended with status {process.returncode} in input {int(at)}")
            total["crashed"] += 1
    counts = ", ".join(f"{count} {verdict}" for verdict, count in total.most_common())
    print(f"{sum(total.values())} inputs in {(time.perf_counter() - begin) / 60:.1f} minutes: {counts}")
    return 1 if total["found"] or total["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())
