"""The same for networks that are no language models: one graph, its inputs as large as they were compiled."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tcim_lite.runtime as tcim

from ..errors import ArgumentError
from ..hmm import Container, read
from ..hmm.weight_format import LAYOUTS
from .cost import weight_bytes
from .limits import MachineLimits, measure_limits
from .measure import Timing
from .runs import Measured, resident_bytes, timed_runs


@dataclass(frozen=True)
class NetworkSpeed:
    """What `measure_network` found; attributes that `PackageSpeed` has too mean the same.

    Attributes:
        folder: Where the file lies.
        name: The file's, without its ending.
        quant: Format of the weights of most operations: "w8a8h1_sefp", "float16" or "float32".
        batch: Extent of axis 0 of the first input.
        weight_bytes: Weights that one run reads.
        int8_operations: Of one run, in convolutions and Linear layers; a multiply-add counts as two.
        float_operations: The same with floating point weights.
        before: The machine's limits before the runs.
        after: The same after them.
        load_s: Seconds to load the module.
        resident_bytes: Memory that the module holds after its runs.
        timings: One.
    """

    folder: str
    name: str
    quant: str
    batch: int
    weight_bytes: int
    int8_operations: int
    float_operations: int
    before: MachineLimits
    after: MachineLimits
    load_s: float
    resident_bytes: int
    timings: tuple[Timing, ...]


def network_file(path: str | Path, name: str | None = None) -> Path | None:
    """The `.hmm` of a network: `path` itself, or that of a folder; None where the folder is a language model's.

    Raises:
        ArgumentError: The folder holds several and no `name` says which.
    """
    path = Path(path)
    if path.suffix == ".hmm" and not path.is_dir():
        return path
    if any(path.glob("*_prefill*.hmm*")):
        return None
    files = sorted(path.glob("*.hmm"))
    if name is not None:
        return next((file for file in files if file.stem == name), None)
    if len(files) > 1:
        names = ", ".join(file.stem for file in files)
        raise ArgumentError(f"{path} holds several networks ({names}); say which with --name")
    return files[0] if files else None


def read_network(path: str | Path) -> Container:
    """The file of a network.

    Raises:
        ArgumentError: It is a graph of a language model.
        FileNotFoundError: No such file.
        HmmFormatError: It is damaged.
    """
    file = read(path)
    if any(op.kind == "FlashAttention" for graph in file.graphs for op in graph.ops):
        raise ArgumentError(f"{path} is one graph of a language model; give its folder, {Path(path).parent}")
    return file


def batch_of(file: Container) -> int:
    """Extent of axis 0 of the first input, 1 where that has one axis."""
    shape = file.graphs[0].values[file.graphs[0].inputs[0]].shape
    return int(shape[0]) if len(shape) > 1 else 1


def measure_network(path: str | Path, *, quick: bool = False) -> NetworkSpeed:
    """Measures load and runs of a network on random inputs.

    Args:
        path: A `.hmm` that `tcim-lite compile MODEL.onnx` wrote.
        quick: Fewer runs.

    Raises:
        ArgumentError: The file is a graph of a language model, which `measure_package` measures.
        FileNotFoundError: No such file.
        TcimError: The file cannot be loaded.
    """
    path = Path(path)
    file = read_network(path)
    int8, floats = operations(file)
    nbytes, batch = weight_bytes(file), batch_of(file)

    started_with, started = resident_bytes(), time.perf_counter()
    module = tcim.load(str(path))
    load_s = time.perf_counter() - started
    run = _run_of(module)
    before = measure_limits(nbytes)
    found = timed_runs(module, run, run, before.threads, quick)
    resident = resident_bytes() - started_with
    after = measure_limits(nbytes)

    return NetworkSpeed(
        folder=str(path.parent),
        name=path.stem,
        quant="w8a8h1_sefp" if int8 > floats else _float_dtype(file),
        batch=batch,
        weight_bytes=nbytes,
        int8_operations=int8,
        float_operations=floats,
        before=before,
        after=after,
        load_s=load_s,
        resident_bytes=resident,
        timings=(_timing(batch, nbytes, int8, floats, found, (before, after)),),
    )


def operations(file: Container) -> tuple[int, int]:
    """Operations of one run in convolutions and Linear layers: with int8 weights, and with floating point ones.

    Of a Linear layer, terms that only pad its rows to whole groups of 64 are counted too.
    """
    counts = [0, 0]
    for graph in file.graphs:
        for op in graph.ops:
            operands = [graph.values[id_] for id_ in op.inputs]
            outputs = math.prod(graph.values[op.outputs[0]].shape)
            if op.kind == "Conv":
                terms = operands[0].shape[1] // int(op.attributes["groups"])
                terms *= math.prod(int(side) for side in str(op.attributes["kernel"]).split(","))
            elif op.kind == "Linear":
                terms = operands[1].shape[-1]
            else:
                continue
            layout = LAYOUTS.get(operands[1].format)  # none: a dense array of floats
            counts[0 if layout is not None and layout.scale_inputs else 1] += 2 * outputs * terms
    return counts[0], counts[1]


def _float_dtype(file: Container) -> str:
    """What the network computes with besides integers; "float16", the compiler's own, if it has nothing else."""
    dtypes = {value.dtype for graph in file.graphs for value in graph.values if value.kind == "intermediate"}
    return "float32" if "float32" in dtypes else "float16"


def _run_of(module: tcim.Module) -> Callable[[], None]:
    """One run as programs make it. Floating point inputs are numbers of a usual size, integers (indices) are 0."""
    generator, inputs = np.random.default_rng(0), {}
    for index in range(module.get_num_inputs()):
        info = module.get_input_info(name := module.get_input_name(index))
        # Not of the shape: an image has fewer bytes than its product.
        count = info.mem_size // np.dtype(info.dtype).itemsize
        values = generator.standard_normal(count) if np.issubdtype(info.dtype, np.floating) else np.zeros(count)
        inputs[name] = values.astype(info.dtype)
    outputs = [module.get_output_name(index) for index in range(module.get_num_outputs())]

    def run() -> None:
        for name, values in inputs.items():
            module.set_input(name, values)
        module.run()
        module.sync()
        for name in outputs:
            module.get_output(name).numpy()

    return run


def _timing(
    batch: int, nbytes: int, int8: int, floats: int, found: Measured, limits: Sequence[MachineLimits]
) -> Timing:
    seconds = statistics.median(found.times)
    limited_by, roof_s = _roof(nbytes, int8, floats, limits)
    return Timing(
        graph="batch",
        depth=0,
        tokens=batch,
        runs=len(found.times),
        seconds=seconds,
        fastest=min(found.times),
        slowest=max(found.times),
        tokens_per_s=batch / seconds,
        limited_by=limited_by,
        share=roof_s / seconds,
        weights_s=roof_s,
        stops=found.stops,
        steps=found.steps,
    )


def _roof(nbytes: int, int8: int, floats: int, limits: Sequence[MachineLimits]) -> tuple[str, float]:
    """The roof and the seconds of a run at it: weights read once, or all products at the peaks of their kinds."""
    rates = [statistics.mean(getattr(moment, name) for moment in limits) for name in ("best_read", "int8", "fp32")]
    if os.environ.get("TCIM_LITE_DEVICE", "cpu") != "cpu" or not all(rates):  # the limits are the CPU's
        return "", 0.0
    reading, products = nbytes / rates[0], int8 / rates[1] + floats / rates[2]
    if reading >= products:
        return "read", reading
    return ("both" if int8 and floats else "int8" if int8 else "fp32"), products
