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
import functools
import os
import random
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import onnx
from node_cases import baked, cases
from onnx import numpy_helper

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
_NUMBERS = (
    -(2**63), -(2**31) - 1, -(2**31), -65537, -9, -3, -2, -1, 0, 1, 2, 3, 4, 7, 8, 63, 64, 65, 255, 4096, 65536,
    2**24 + 1, 2**31 - 1, 2**31, 2**32, 2**40, 2**53, 2**62, 2**63 - 1,
)  # fmt: skip
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-38, 1e38, 65504.0, -7.5, float("inf"), float("-inf"), float("nan"))
_TEXTS = (
    "", "x", "../x", "/etc/passwd", "\0", "\x1b[31m", "ä" * 600, "a" * 5000, "com.example", "SAME_UPPER", "linear",
)  # fmt: skip


class TooSlowError(Exception):
    """An input took longer than `_SECONDS`."""


@functools.cache
def seeds() -> list[bytes]:
    """The models that inputs are made of: node cases of at most 20 kB, their constants baked in."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases():
            for inputs, _ in case.data_sets[:1]:
                try:
                    data = baked(case.model, inputs)[0].SerializeToString()
                except (AttributeError, NotImplementedError, TypeError, ValueError):  # sequences
                    data = case.model.SerializeToString()
                if len(data) <= 20_000:
                    found.append(data)
    return found


def mutated(number: int) -> onnx.ModelProto | bytes:
    """The input with this number."""
    rng = random.Random(number)
    data = rng.choice(seeds())
    if rng.random() < 0.15:
        raw = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 4, 16))):
            raw[rng.randrange(len(raw))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        return bytes(raw[: rng.randrange(len(raw))] if rng.random() < 0.2 else raw)
    model = onnx.load_from_string(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        rng.choice(_CHANGES)(rng, model)
    return model


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


def _node(rng: random.Random, model: onnx.ModelProto) -> onnx.NodeProto:
    return rng.choice(model.graph.node) if model.graph.node else model.graph.node.add()


def _names(model: onnx.ModelProto) -> list[str]:
    graph = model.graph
    named = [*graph.initializer, *graph.input, *graph.output]
    return ["", *(part.name for part in named), *(name for node in graph.node for name in (*node.input, *node.output))]


def _change_op(rng: random.Random, model: onnx.ModelProto) -> None:
    other = onnx.load_from_string(rng.choice(seeds()))
    node, source = _node(rng, model), _node(rng, other)
    node.op_type = source.op_type if rng.random() < 0.9 else rng.choice(_TEXTS)
    if rng.random() < 0.5:
        del node.attribute[:]
        node.attribute.extend(source.attribute)


def _change_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    if not node.attribute:
        return
    index = rng.randrange(len(node.attribute))
    attribute = node.attribute[index]
    kind = rng.random()
    if kind < 0.15:
        del node.attribute[index]
    elif kind < 0.3:
        node.attribute.append(onnx.helper.make_attribute(attribute.name, rng.choice((1, 1.5, "x", [1, 2], [0.5]))))
        del node.attribute[index]
    elif attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(_NUMBERS)
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = rng.choice(_NUMBERS)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = rng.choice(_FLOATS)
    else:
        attribute.s = rng.choice(_TEXTS).encode()


def _change_shape(rng: random.Random, model: onnx.ModelProto) -> None:
    if not model.graph.input:
        return
    tensor = rng.choice(model.graph.input).type.tensor_type
    if tensor.shape.dim and rng.random() < 0.8:
        rng.choice(tensor.shape.dim).dim_value = rng.choice(_NUMBERS)
    else:
        tensor.shape.dim.add().dim_value = rng.choice((1, 2, 3))
    if rng.random() < 0.2:
        tensor.elem_type = rng.randrange(30)


def _change_constant(rng: random.Random, model: onnx.ModelProto) -> None:
    if not model.graph.initializer:
        return
    tensor = rng.choice(model.graph.initializer)
    kind = rng.random()
    if kind < 0.3 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(_NUMBERS)
    elif kind < 0.4:
        tensor.data_type = rng.randrange(30)
    elif kind < 0.5:
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", rng.choice(_TEXTS)), ("offset", str(rng.choice(_NUMBERS)))):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value
    else:
        try:
            array = np.array(numpy_helper.to_array(tensor))
            numbers = _NUMBERS if array.dtype.kind in "iu" else _FLOATS
            with np.errstate(all="ignore"):
                array.reshape(-1)[rng.randrange(array.size)] = rng.choice(numbers)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError, onnx.checker.ValidationError):
            tensor.raw_data = tensor.raw_data[:-1]


def _change_wires(rng: random.Random, model: onnx.ModelProto) -> None:
    node, names = _node(rng, model), _names(model)
    ends = node.input if rng.random() < 0.7 else node.output
    kind = rng.random()
    if ends and kind < 0.6:
        ends[rng.randrange(len(ends))] = rng.choice(names) if kind < 0.5 else rng.choice(_TEXTS)
    elif ends and kind < 0.8:
        del ends[rng.randrange(len(ends))]
    else:
        ends.append(rng.choice(names))


def _change_nodes(rng: random.Random, model: onnx.ModelProto) -> None:
    graph = model.graph
    kind = rng.random()
    if graph.node and kind < 0.3:
        del graph.node[rng.randrange(len(graph.node))]
    elif kind < 0.6:  # another node behind an output
        other = onnx.load_from_string(rng.choice(seeds())).graph
        if other.node and graph.output:
            node = graph.node.add()
            node.CopyFrom(rng.choice(other.node))
            graph.initializer.extend(other.initializer)
            if node.input and node.output:
                node.input[0], node.output[0] = graph.output[0].name, "behind"
                graph.output[0].name = "behind"
    elif kind < 0.8:
        _node(rng, model).domain = rng.choice(_TEXTS)
    elif graph.output:
        rng.choice(graph.output).name = rng.choice(_names(model))


def _change_opset(rng: random.Random, model: onnx.ModelProto) -> None:
    if model.opset_import:
        rng.choice(model.opset_import).version = rng.choice((0, 6, 7, 9, 11, 12, 13, 17, 18, 21, 24, 25, 2**40))


_CHANGES: tuple[Callable[[random.Random, onnx.ModelProto], None], ...] = (
    *[_change_op] * 2, *[_change_attribute] * 4, *[_change_shape] * 2, *[_change_constant] * 4, *[_change_wires] * 2,
    _change_nodes, _change_opset,
)  # fmt: skip


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
