"""What vLLM costs beside the graph: a step of the engine with all slots decoding, against raw decode runs.

    .venv-vllm/bin/python -P benchmarks/bench_vllm.py                     # the demo model
    .venv-vllm/bin/python -P benchmarks/bench_vllm.py PACKAGE --steps 300 # such as one of benchmarks/shapes, --batch 4
    .venv-vllm/bin/python -P benchmarks/bench_vllm.py PACKAGE --served-steps 200 # and steps of a server, over HTTP
    .venv-vllm/bin/python -P benchmarks/bench_vllm.py PACKAGE --served 60 # and `vllm bench serve` against a server
    .venv-vllm/bin/python -P benchmarks/bench_vllm.py PACKAGE --served 60 --beside # and against `tcim-lite serve`

Each step of vLLM is followed by a bare run of the same graph, so both see the same machine. A step is cut into what
vLLM calls in turn: its scheduler, the worker (taking in what was scheduled; the graph with its inputs and outputs; the
sampler), and the rest, which is outputs, text and bookkeeping. Figures are medians in ms; `rate` is the bare run over
the step, which is served tokens over those of raw decode steps.

The engine is in this process, without HTTP. PACKAGE needs no tokenizer: prompts are token ids.
"""

import os

os.environ.update(VLLM_PLUGINS="tcim_lite", VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

import argparse
import contextlib
import gc
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams

from tcim_lite.bench import machine_name

VLLM = str(Path(sys.executable).with_name("vllm"))
SERVERS = {"vllm": [VLLM], "tcim-lite": [sys.executable, "-P", "-m", "tcim_lite"]}
SERVED = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
JSON = {"Content-Type": "application/json"}
DEMO = Path(__file__).parent.parent / "examples" / "demo_checkpoint"
KINDS = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "seed": 1},
    "greedy, 5 logprobs": {"temperature": 0.0, "logprobs": 5},
}


def timed(times: dict[str, float], name: str, owner: Any, method: str) -> None:
    """Has calls of a method add to `times[name]`, in seconds."""
    plain = getattr(owner, method)

    def call(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        try:
            return plain(*args, **kwargs)
        finally:
            times[name] += time.perf_counter() - begin

    setattr(owner, method, call)


def measure(llm: LLM, times: dict[str, float], kind: str, steps: int) -> dict[str, float]:
    """Medians in ms of the parts of a step with all slots at work."""
    engine = llm.llm_engine
    slots = engine.model_executor.driver_worker.worker.runner._slots
    graph = slots.stages[-1].decode
    params = SamplingParams(max_tokens=steps + 60, ignore_eos=True, detokenize=False, **KINDS[kind])
    for number in range(len(slots)):
        engine.add_request(f"{kind} {number}", {"prompt_token_ids": list(range(10 + number, 20 + number))}, params)
    for _ in range(30):
        engine.step()
    found = defaultdict(list)
    for _ in range(steps):
        times.clear()
        begin = time.perf_counter()
        engine.step()
        middle = time.perf_counter()
        graph.run()  # writes the same rows again
        graph.sync()
        end = time.perf_counter()
        whole = middle - begin
        worker = times["update"] + times["run"] + times["sample"]
        parts = {
            "bare run": end - middle,
            "step": whole,
            "scheduler": times["schedule"] + times["update from output"],
            "worker: take in": times["update"],
            "worker: graph": times["run"],
            "worker: sampler": times["sample"],
            "rest": whole - worker - times["schedule"] - times["update from output"],
            "cost": whole - (end - middle),
        }
        for name, seconds in parts.items():
            found[name].append(seconds * 1e3)
    engine.abort_request([f"{kind} {number}" for number in range(len(slots))], internal=False)
    while engine.has_unfinished_requests():
        engine.step()
    engine.step()
    result = {name: statistics.median(values) for name, values in found.items()}
    return result | {"rate": result["bare run"] / result["step"]}


def in_process(package: Path, steps: int) -> tuple[int, float]:
    """Prints the parts of a step for each kind of request; returns B, and the bare run in ms."""
    llm = LLM(model=str(package), skip_tokenizer_init=True, seed=0)
    times: dict[str, float] = defaultdict(float)
    core = llm.llm_engine.engine_core.engine_core
    runner = llm.llm_engine.model_executor.driver_worker.worker.runner
    timed(times, "schedule", core.scheduler, "schedule")
    timed(times, "update from output", core.scheduler, "update_from_output")
    for name in ("update", "run", "sample"):
        timed(times, name, runner, name)
    bare = []
    for kind in KINDS:
        found = measure(llm, times, kind, steps)
        print(f"{kind:20}" + "".join(f"{name} {value:.3f}  " for name, value in found.items()), flush=True)
        bare.append(found["bare run"])
    return len(runner._slots), min(bare)


@contextlib.contextmanager
def server(command: list[str], package: Path, *options: str) -> Iterator[str]:
    """`vllm serve PACKAGE` or `tcim-lite serve PACKAGE`; gives its port, once it is healthy."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    where = ["--port", port, "--served-model-name", str(package)]
    process = subprocess.Popen([*command, "serve", str(package), *where, *options], env=SERVED)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit("the server ended before it was healthy") from None
                time.sleep(1)
        yield port
    finally:
        process.terminate()
        process.wait(60)


def served_step(port: str, package: Path, lanes: int, steps: int) -> float:
    """ms between tokens of `lanes` greedy answers over HTTP: what `steps` more tokens of each take longer."""

    def ask(number: int, tokens: int) -> None:
        body = {"model": str(package), "prompt": list(range(10 + number, 20 + number)), "max_tokens": tokens}
        data = json.dumps(body | {"temperature": 0, "ignore_eos": True}).encode()
        address = f"http://127.0.0.1:{port}/v1/completions"
        with urllib.request.urlopen(urllib.request.Request(address, data, JSON), timeout=600) as answer:
            found = json.load(answer)["usage"]["completion_tokens"]
        if found != tokens:
            raise SystemExit(f"{tokens} tokens asked for, {found} answered")

    def seconds(tokens: int) -> float:
        begin = time.perf_counter()
        with ThreadPoolExecutor(lanes) as pool:
            list(pool.map(ask, range(lanes), [tokens] * lanes))
        return time.perf_counter() - begin

    seconds(8)
    short, long = (min(seconds(tokens) for _ in range(3)) for tokens in (32, 32 + steps))
    return (long - short) / steps * 1e3


def bench_serve(port: str, package: Path, lanes: int, requests: int) -> dict[str, Any]:
    """What `vllm bench serve` says of `requests` answers, `lanes` at once."""
    with tempfile.TemporaryDirectory() as folder:
        load = ["--dataset-name", "random", "--random-input-len", "100", "--random-output-len", "64"]
        counts = ["--num-prompts", str(requests), "--max-concurrency", str(lanes), "--ignore-eos"]
        where = ["--port", port, "--model", str(package), "--save-result", "--result-dir", folder]
        command = [VLLM, "bench", "serve", *load, *counts, *where, "--result-filename", "r.json"]
        subprocess.run(command, check=True, env=SERVED, stdout=subprocess.DEVNULL)
        found: dict[str, Any] = json.loads((Path(folder) / "r.json").read_text())
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, nargs="?")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--served-steps", type=int, default=0, help="steps of answers over HTTP, at 1 and at B at once")
    parser.add_argument("--served", type=int, default=0, help="requests of `vllm bench serve`; needs a tokenizer")
    parser.add_argument("--beside", action="store_true", help="measure `tcim-lite serve` too; needs a tokenizer")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        package = args.package or Path(folder)
        if args.package is None:
            compiler = [sys.executable, "-P", "-m", "tcim_lite", "compile", str(DEMO)]
            subprocess.run([*compiler, "-o", folder, "--batch", "4", "-q"], check=True)
        print(f"{package}, {machine_name()}")
        slots, bare = in_process(package, args.steps)
        gc.collect()
        for name, command in list(SERVERS.items())[: 1 + args.beside]:
            if args.served_steps:
                options = ["--skip-tokenizer-init"] * (name == "vllm")
                with server(command, package, *options) as port:
                    for lanes in (1, slots):
                        step = served_step(port, package, lanes, args.served_steps)
                        rate = f", rate {bare / step:.3f}" * (lanes > 1)
                        print(f"{name}, {lanes} at once: {step:.3f} ms a step{rate}", flush=True)
            if args.served:
                with server(command, package) as port:
                    for lanes in (1, slots, 2 * slots):
                        one = bench_serve(port, package, lanes, args.served)
                        print(
                            f"{name}, bench serve, {lanes} at once: {one['completed']} completed, {one['failed']} "
                            f"failed, {one['output_throughput']:.0f} tokens/s, TTFT {one['median_ttft_ms']:.1f} ms, "
                            f"TPOT {one['mean_tpot_ms']:.2f} ms",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
