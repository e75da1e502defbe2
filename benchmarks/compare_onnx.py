"""Networks from ONNX on the CPU: tcim_lite against onnxruntime and OpenVINO, the same file, input and threads.

    pip install '.[onnx]' torch onnxruntime openvino nncf
    python benchmarks/compare_onnx.py resnet50 mobilenet_v2 [MODEL.onnx ...] [--threads 2] [--rounds 5] [--csv FILE]

A name is one of the networks of tests/onnx/zoo with random weights; times do not depend on them. Every engine has a
process of its own that has loaded its model. In each round the engines run one after another, each for about a second,
so that what disturbs the machine disturbs all. Figures are medians over the rounds. On a shared machine compare the
CPU time of `--threads 1`: with more, engines count what their threads spend waiting for work. An int8 model is made by
the engine's own quantiser (onnxruntime's static QDQ, NNCF's post-training quantisation) from random inputs. An engine
that is not installed is left out and named.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

ZOO = Path(__file__).resolve().parents[1] / "tests/onnx"
ENGINES = (
    "tcim float32", "tcim float16", "tcim w8a8", "ort fp32", "ort int8",
    "openvino fp32", "openvino bf16", "openvino int8",
)  # fmt: skip
_SECONDS = 1.0  # of runs in a round


def _tcim(path: Path, x: np.ndarray, profile: str, threads: int) -> Callable[[], object]:
    from tcim_lite.models.onnx.compile import OnnxOptions, compile_onnx
    from tcim_lite.runtime import Module

    quant = {"w8a8": "w8a8h1_sefp"}.get(profile, profile)
    module = Module.load(str(compile_onnx(OnnxOptions(model=path, output=path.parent / profile, quant=quant)).path))
    name = module.get_input_name(0)
    info = module.get_input_info(name)
    value = x.astype(info.dtype)

    def run() -> object:
        module.set_input(name, value)
        module.run(sync=True)
        return module.get_output(module.get_output_name(0)).numpy()

    return run


def _ort(path: Path, x: np.ndarray, profile: str, threads: int) -> Callable[[], object]:
    import onnxruntime

    name = _input_name(path)
    if profile == "int8":
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process

        class Inputs(CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.left = [{name: value} for value in _samples(x)]

            def get_next(self) -> dict[str, np.ndarray] | None:
                return self.left.pop() if self.left else None

        plain, quantised = path.with_name("ort_plain.onnx"), path.with_name("ort_int8.onnx")
        quant_pre_process(path, plain)
        quantize_static(
            plain, quantised, Inputs(), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
        path = quantised
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {name: x})


def _openvino(path: Path, x: np.ndarray, profile: str, threads: int) -> Callable[[], object]:
    import openvino

    core = openvino.Core()
    model = core.read_model(path)
    if profile == "bf16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        raise RuntimeError("this CPU has no bf16")
    if profile == "int8":
        import nncf

        model = nncf.quantize(model, nncf.Dataset(_samples(x)), subset_size=8)
    hint = {"bf16": "bf16"}.get(profile, "f32")
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": hint, "PERFORMANCE_HINT": "LATENCY"}
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    return lambda: request.infer([x])[0]


def _samples(x: np.ndarray) -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    return [x] * 2 if x.dtype.kind == "i" else [rng.standard_normal(x.shape).astype(np.float32) for _ in range(8)]


def _input_name(path: Path) -> str:
    import onnx

    return onnx.load(path, load_external_data=False).graph.input[0].name


def _worker(pipe: Connection, engine: str, path: Path, x: np.ndarray, threads: int) -> None:
    """Loads a model, then answers each message with the medians of a second of runs, in milliseconds: of the time and
    of the CPU time of all threads. None ends it."""
    os.environ["TCIM_LITE_THREADS"] = str(threads)
    maker, profile = engine.split()
    try:
        run = {"tcim": _tcim, "ort": _ort, "openvino": _openvino}[maker](path, x, profile, threads)
        first = np.asarray(run()[0] if maker == "ort" else run()).astype(np.float32)  # type: ignore[index]
        for _ in range(2):
            run()
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}")
        return
    pipe.send(first)
    while pipe.recv() is not None:
        times: list[tuple[float, float]] = []
        end = time.perf_counter() + _SECONDS
        while time.perf_counter() < end or len(times) < 3:
            begin, begin_cpu = time.perf_counter(), time.process_time()
            run()
            times.append((time.perf_counter() - begin, time.process_time() - begin_cpu))
        pipe.send(tuple(1e3 * statistics.median(column) for column in zip(*times, strict=True)))


Times = dict[str, list[tuple[float, float]]]


def compare(path: Path, x: np.ndarray, engines: Sequence[str], threads: int, rounds: int) -> Times:
    """Milliseconds of one run and of its CPU time, by engine and round."""
    context = multiprocessing.get_context("spawn")
    workers = {}
    reference = None
    for engine in engines:
        ours, theirs = context.Pipe()
        process = context.Process(target=_worker, args=(theirs, engine, path, x, threads), daemon=True)
        process.start()
        theirs.close()
        try:
            first = ours.recv()
        except EOFError:
            first = "it ended while it loaded"
        if isinstance(first, str):
            print(f"  {engine}: left out: {first}", flush=True)
            continue
        reference = first if reference is None else reference
        a, b = first.ravel().astype(np.float64), reference.ravel().astype(np.float64)
        print(f"  {engine}: cosine with {engines[0]} {a @ b / np.linalg.norm(a) / np.linalg.norm(b):.5f}", flush=True)
        workers[engine] = (ours, process)
    found: Times = {engine: [] for engine in workers}
    for _ in range(rounds):
        for engine, (pipe, _process) in workers.items():
            pipe.send(True)
            found[engine].append(pipe.recv())
    for pipe, process in workers.values():
        pipe.send(None)
        process.join()
    return found


def _model(name: str, folder: Path) -> tuple[Path, np.ndarray]:
    """A network of the zoo exported into `folder`, or a file with an input of its own shape."""
    import onnx

    if name.endswith(".onnx"):
        shape = [dim.dim_value or 1 for dim in onnx.load(name).graph.input[0].type.tensor_type.shape.dim]
        return Path(name), np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    sys.path.insert(0, str(ZOO))
    from zoo import NETWORKS, build, export

    module, x = build(NETWORKS[name], NETWORKS[name].full)
    path = folder / f"{name}.onnx"
    onnx.save(export(module, x), path)
    return path, x


def _gmac(path: Path) -> float:
    """Thousand million multiply-adds of a compiled network."""
    from tcim_lite.bench.network import operations
    from tcim_lite.hmm import read

    return sum(operations(read(path))) / 2e9


def main() -> None:
    """Prints a table per network: milliseconds, the share of the machine's fp32 or int8 peak, and the ratio to ours."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a network of tests/onnx/zoo, or a .onnx file")
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES, metavar="ENGINE")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--csv", type=Path, help="append rows: model, engine, threads, milliseconds of each round")
    args = parser.parse_args()
    os.environ["TCIM_LITE_THREADS"] = str(args.threads)
    from tcim_lite.bench.limits import machine_name, measure_limits

    print(machine_name(), f"{args.threads} threads, load {os.getloadavg()[0]:.1f}")
    for name in args.models:
        with tempfile.TemporaryDirectory() as folder:
            path, x = _model(name, Path(folder))
            print(f"{name} {list(x.shape)}", flush=True)
            before = measure_limits()
            found = compare(path, x, args.engines, args.threads, args.rounds)
            after = measure_limits()
            package = next(path.parent.glob("*/*.hmm"), None)
            work = _gmac(package) if package is not None else 0.0
        fp32, int8 = max(before.fp32, after.fp32), max(before.int8, after.int8)
        print(f"  {work:.2f} GMAC; peaks: fp32 {fp32 / 1e9:.0f}, int8 {int8 / 1e9:.0f} G operations/s")
        print("| engine | ms | slowest round | CPU ms | G operations/s | share of peak |\n|---|---|---|---|---|---|")
        for engine, both in found.items():
            times, cpu = [wall for wall, _ in both], statistics.median(cpu for _, cpu in both)
            middle = statistics.median(times)
            rate = 2e12 * work / middle
            peak = int8 if engine.endswith(("int8", "w8a8")) else fp32
            share = f"{rate / 1e9:.0f} | {100 * rate / peak:.0f} %"
            print(f"| {engine} | {middle:.2f} | {max(times):.2f} | {cpu:.2f} | {share} |")
        if args.csv is not None:
            with args.csv.open("a", newline="") as file:
                for engine, both in found.items():
                    csv.writer(file).writerow([name, engine, args.threads, *(f"{wall:.3f}" for wall, _ in both)])


if __name__ == "__main__":
    main()
