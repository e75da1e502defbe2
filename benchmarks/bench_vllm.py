"""What vLLM costs beside the graph: a step of the engine with all slots decoding, against raw decode runs.

    .venv-vllm/bin/python -P benchmarks/bench_vllm.py                     # the demo model
    .venv-vllm/bin/python -P benchmarks/bench_vllm.py PACKAGE --steps 300 # such as one of benchmarks/shapes, --batch 4
    .venv-vllm/bin/python -P benchmarks/bench_vllm.py PACKAGE --served 60 # and `vllm bench serve` against a server

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
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams

from tcim_lite.bench import machine_name

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


def serve(package: Path, requests: int) -> Iterator[dict[str, Any]]:
    """`vllm bench serve` at 1 and at 4 requests at once, against a server with the same package."""
    vllm = str(Path(sys.executable).with_name("vllm"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    env = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    server = subprocess.Popen([vllm, "serve", str(package), "--port", port], env=env)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except OSError:
                if server.poll() is not None:
                    raise SystemExit("the server ended before it was healthy") from None
                time.sleep(1)
        for lanes in (1, 4, 8):
            with tempfile.TemporaryDirectory() as folder:
                load = ["--dataset-name", "random", "--random-input-len", "100", "--random-output-len", "64"]
                counts = ["--num-prompts", str(requests), "--max-concurrency", str(lanes), "--ignore-eos"]
                where = ["--port", port, "--model", str(package), "--save-result", "--result-dir", folder]
                subprocess.run(
                    [vllm, "bench", "serve", *load, *counts, *where, "--result-filename", "r.json"],
                    check=True,
                    env=env,
                    stdout=subprocess.DEVNULL,
                )
                yield json.loads((Path(folder) / "r.json").read_text()) | {"lanes": lanes}
    finally:
        server.terminate()
        server.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, nargs="?")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--served", type=int, default=0, help="requests of `vllm bench serve`; needs a tokenizer")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        package = args.package or Path(folder)
        if args.package is None:
            compiler = [
                sys.executable,
                "-P",
                "-m",
                "tcim_lite",
                "compile",
                str(DEMO),
                "-o",
                folder,
                "--batch",
                "4",
                "-q",
            ]
            subprocess.run(compiler, check=True)
        print(f"{package}, {machine_name()}")
        llm = LLM(model=str(package), skip_tokenizer_init=True, seed=0)
        times: dict[str, float] = defaultdict(float)
        core = llm.llm_engine.engine_core.engine_core
        runner = llm.llm_engine.model_executor.driver_worker.worker.runner
        timed(times, "schedule", core.scheduler, "schedule")
        timed(times, "update from output", core.scheduler, "update_from_output")
        for name in ("update", "run", "sample"):
            timed(times, name, runner, name)
        for kind in KINDS:
            found = measure(llm, times, kind, args.steps)
            print(f"{kind:20}" + "".join(f"{name} {value:.3f}  " for name, value in found.items()))
        if args.served:
            del llm, runner, core
            for one in serve(package, args.served):
                print(
                    f"bench serve, {one['lanes']} at once: {one['completed']} completed, {one['failed']} failed, "
                    f"{one['output_throughput']:.0f} tokens/s, TTFT {one['median_ttft_ms']:.1f} ms, "
                    f"TPOT {one['mean_tpot_ms']:.2f} ms"
                )


if __name__ == "__main__":
    main()
