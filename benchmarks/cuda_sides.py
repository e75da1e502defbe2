"""The sides of compare_cuda.py. Each runs in a process of its own and prints one line of JSON.

python benchmarks/cuda_sides.py ours FOLDER
python benchmarks/cuda_sides.py torch CONFIG
python benchmarks/cuda_sides.py ceilings
"""

import json
import statistics
import sys
import time
from pathlib import Path

PREFILL, CONTEXT, DEPTH, STEPS = 256, 2048, 1024, 100


def side_ours(folder: Path) -> dict:
    """Seconds of a prefill chunk, and of a decode step from set_input to the logits on the host."""
    import numpy as np

    import tcim_lite.runtime as tcim
    from tcim_lite.llm import Package, cache_names

    package = Package.open(folder)
    weights = tcim.WeightManager(0)
    started = time.perf_counter()
    prefill = tcim.load(package.prefill_path, tcim.Option(weights))
    load = time.perf_counter() - started
    decode = tcim.load(package.decode_path, tcim.Option(weights).set_dummy_tensors(cache_names(prefill)))
    for name in cache_names(prefill):
        decode.set_input(name, prefill.get_dev_input(name))
    embedding = package.embedding_for(prefill)
    tokens = np.random.default_rng(0).integers(0, embedding.shape[0], CONTEXT)
    emb = prefill.get_input_name(0)

    def chunk(base: int) -> float:
        prefill.set_input(emb, embedding[tokens[base : base + PREFILL]][None])
        prefill.set_input("valid_length", np.array([base], np.int32))
        prefill.set_input("current_length", np.array([PREFILL], np.int32))
        started = time.perf_counter()
        prefill.run(sync=True)
        return time.perf_counter() - started

    chunk(0)
    result = {"load_s": load, "prefill_s": statistics.median(chunk(0) for _ in range(7))}
    result["prefill_long_s"] = sum(chunk(base) for base in range(0, CONTEXT - PREFILL, PREFILL)) + chunk(
        CONTEXT - PREFILL
    )
    batch = decode.get_input_info(emb).shape[0]
    valid = [
        name for name in map(decode.get_input_name, range(decode.get_num_inputs())) if name.startswith("valid_length")
    ]
    for name in valid:
        decode.set_input(name.replace("valid", "current"), np.array([1], np.int32))
    for depth in (0, DEPTH):
        steps, runs = [], []
        for step in range(STEPS):
            row = embedding[tokens[depth + step]][None, None].repeat(batch, 0)
            started = time.perf_counter()
            decode.set_input(emb, row)
            for name in valid:
                decode.set_input(name, np.array([depth + step], np.int32))
            begun = time.perf_counter()
            decode.run(sync=True)
            runs.append(time.perf_counter() - begun)
            logits = decode.get_output("logits").numpy()
            steps.append(time.perf_counter() - started)
        assert np.isfinite(logits).all()
        result[f"decode_{depth}_s"], result[f"run_{depth}_s"] = statistics.median(steps), statistics.median(runs)
    return result


def side_torch(config_file: Path) -> dict:
    """transformers in bf16: decode compiled and replayed as a CUDA graph, prefill eager."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM, StaticCache

    fields = json.loads(config_file.read_text())
    theta = fields.pop("rope_theta")
    torch.set_default_dtype(torch.bfloat16)
    config = Qwen3Config(**fields, rope_parameters={"rope_type": "default", "rope_theta": theta}, eos_token_id=None)
    with torch.device("cuda"):
        model = Qwen3ForCausalLM(config).eval()
    ids = torch.randint(0, config.vocab_size, (1, PREFILL), device="cuda")
    cache = StaticCache(config=config, max_cache_len=CONTEXT)

    def median(call, count: int) -> float:
        times = []
        for _ in range(count + 3):
            torch.cuda.synchronize()
            started = time.perf_counter()
            call()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - started)
        return statistics.median(times[3:])

    def captured(call):
        warm = torch.cuda.Stream()
        warm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(warm)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return graph.replay

    def prompt() -> None:
        cache.reset()
        model(ids, past_key_values=cache, logits_to_keep=1)

    with torch.no_grad():
        result = {"prefill_s": median(prompt, 5)}
        token = ids[:, :1].clone()
        position = torch.tensor([[DEPTH]], device="cuda")
        cache.reset()
        # torch.compile's own CUDA graphs leave guards and copies to Python at every step; a graph of the whole step
        # does not. The faster one counts.
        for mode, replayed in (("reduce-overhead", False), ("default", True)):
            torch.compiler.reset()
            compiled = torch.compile(model.forward, fullgraph=True, mode=mode)

            def step(compiled=compiled) -> None:
                compiled(token, position_ids=position, past_key_values=cache, logits_to_keep=1)

            try:
                seconds = median(captured(step) if replayed else step, 60)
            except RuntimeError as error:
                print(f"{mode}: {error}", file=sys.stderr)
                continue
            result["decode_graph_s" if replayed else "decode_compiled_s"] = seconds
            result[f"decode_{DEPTH}_s"] = min(seconds, result.get(f"decode_{DEPTH}_s", seconds))
    return result


def side_ceilings() -> dict:
    """Bytes and operations a second of the GPU: copies, a GEMV that reads 1.2 GB, a product of 8192 cubed."""
    import torch
    from triton.testing import do_bench

    def seconds(call) -> float:
        return do_bench(call, warmup=50, rep=200, return_mode="median") / 1e3

    source = torch.randn(1 << 30, device="cuda")
    target = torch.empty_like(source)
    copied = 2 * source.nbytes / seconds(lambda: target.copy_(source))
    result = {"name": torch.cuda.get_device_name(), "copy_b_s": copied}
    matrix = torch.randn(151936, 4096, device="cuda", dtype=torch.float16)
    vector = torch.randn(4096, 1, device="cuda", dtype=torch.float16)
    result["gemv_b_s"] = matrix.nbytes / seconds(lambda: matrix @ vector)
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    result["gemm_o_s"] = 2 * 8192**3 / seconds(lambda: a @ a)
    return result


if __name__ == "__main__":
    sides = {"ours": side_ours, "torch": side_torch, "ceilings": side_ceilings}
    print(json.dumps(sides[sys.argv[1]](*map(Path, sys.argv[2:]))))
