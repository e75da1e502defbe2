"""The sides of bench_qwen3.py. Each runs in a process of its own and prints one line of JSON.

    python benchmarks/qwen3_sides.py ours|bfloat16|float32 FOLDER

FOLDER is a compiled package with its config.json; the transformers sides use only the config.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

PREFILL, CONTEXT, DEPTH, DECODED = 256, 2048, 1024, 48


def resident_bytes() -> int:
    """Of this process, without the embedding table: a file that the host program maps, not the runtime."""
    total, counted = 0, True
    for line in Path("/proc/self/smaps").read_text().splitlines():
        field = line.split(maxsplit=5)
        if "-" in field[0] and not field[0].endswith(":"):
            counted = len(field) < 6 or "quant_embedding" not in field[5]
        elif field[0] == "Rss:" and counted:
            total += int(field[1]) * 1024
    return total


def side_ours(folder: Path) -> dict:
    """Runs in its own process: load, prefill, decode at two depths, memory."""
    import numpy as np

    import tcim_lite.runtime as tcim
    from tcim_lite.llm import Generator, Package, cache_names

    package = Package.open(folder)
    tcim.get_device_num()
    base = resident_bytes()
    started = time.perf_counter()
    weights = tcim.WeightManager(0)
    prefill = tcim.load(package.prefill_path, tcim.Option(weights))
    load_first = time.perf_counter() - started
    started = time.perf_counter()
    decode = tcim.load(package.decode_path, tcim.Option(weights).set_dummy_tensors(cache_names(prefill)))
    load_second = time.perf_counter() - started
    for name in cache_names(prefill):
        decode.set_input(name, prefill.get_dev_input(name))

    vocab = prefill.get_output_info("logits").shape[-1]
    hidden = prefill.get_input_info(prefill.get_input_name(0)).shape[-1]
    generator = Generator(prefill, decode, package.embedding(hidden, vocab))
    decode.set_input("current_length", np.array([1], np.int32))
    tokens = np.random.default_rng(0).integers(0, vocab, CONTEXT).tolist()
    generator.prefill(tokens[:PREFILL])
    prefill_s = []
    for _ in range(3):
        started = time.perf_counter()
        generator.prefill(tokens[:PREFILL])
        prefill_s.append(time.perf_counter() - started)
    result = {"load_first_s": load_first, "load_second_s": load_second, "prefill_s": statistics.median(prefill_s)}
    for depth in (0, DEPTH):
        if depth:
            generator.prefill(tokens[:depth])
        steps = []
        for position in range(depth, depth + DECODED):
            started = time.perf_counter()
            generator.decode(tokens[position], position)
            steps.append(time.perf_counter() - started)
        result[f"decode_{depth}_s"] = statistics.median(steps)
    # Resident once every weight and every live cache row has been used.
    result["resident_bytes"] = resident_bytes() - base
    return result


def side_transformers(folder: Path, dtype: str) -> dict:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM, StaticCache

    torch.manual_seed(0)
    torch.set_num_threads(int(os.environ["BENCH_THREADS"]))
    torch.set_default_dtype(getattr(torch, dtype))
    fields = json.loads((folder / "config.json").read_text())
    theta = fields.pop("rope_theta")
    config = Qwen3Config(**fields, rope_parameters={"rope_type": "default", "rope_theta": theta}, eos_token_id=None)
    model = Qwen3ForCausalLM(config).eval()
    ids = torch.randint(0, config.vocab_size, (1, PREFILL))
    cache = StaticCache(config=config, max_cache_len=PREFILL + 24)
    prefill_s, decode_s = [], []
    with torch.no_grad():
        for round_ in range(3):
            cache.reset()
            started = time.perf_counter()
            positions = torch.arange(PREFILL)[None]
            logits = model(ids, position_ids=positions, past_key_values=cache, logits_to_keep=1).logits
            prefill_s.append(time.perf_counter() - started)
            for step in range(16 if round_ else 0):
                token = logits[:, -1].argmax(-1, keepdim=True)
                started = time.perf_counter()
                position = torch.tensor([[PREFILL + step]])
                logits = model(token, position_ids=position, past_key_values=cache, logits_to_keep=1).logits
                decode_s.append(time.perf_counter() - started)
    return {"prefill_s": statistics.median(prefill_s[1:]), "decode_s": statistics.median(decode_s)}


if __name__ == "__main__":
    side, package_folder = sys.argv[1], Path(sys.argv[2])
    print(json.dumps(side_ours(package_folder) if side == "ours" else side_transformers(package_folder, side)))
