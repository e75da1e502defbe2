"""OpenVINO GenAI's side, tuned: activations quantised by groups of 128.  python side_openvino.py FOLDER THREADS

The pipeline chooses the tokens itself, greedily; prompts that it has not seen keep its prefix cache out of it.
"""

import itertools
import statistics
import sys
import time

import numpy as np
import openvino as ov
import openvino_genai as genai
from timing import DEPTH, PROMPTS, REPEATS, STEPS, memory, prompt, report, started_at


def run(pipeline, length: int, seed: int, new_tokens: int) -> list[float]:
    """Seconds to the first token, then of each further one."""
    ids = np.array([prompt(length, seed)], np.int64)
    config = genai.GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = new_tokens
    config.ignore_eos, config.do_sample = True, False
    inputs = genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))
    metrics = pipeline.generate(inputs, config).perf_metrics
    times = [moment / 1e3 for moment in metrics.raw_metrics.m_new_token_times]  # from milliseconds
    return [metrics.get_ttft().mean / 1e3, *(b - a for a, b in itertools.pairwise(times))]


imports_bytes, begin = memory("VmRSS"), time.perf_counter()
options = {
    "INFERENCE_NUM_THREADS": int(sys.argv[2]),
    "PERFORMANCE_HINT": "LATENCY",
    "ATTENTION_BACKEND": "PA",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "128",
}
pipeline = genai.LLMPipeline(sys.argv[1], "CPU", **options)
result = {"load_s": time.perf_counter() - begin, "imports_bytes": imports_bytes}
run(pipeline, PROMPTS[0], seed=-1, new_tokens=1)
result["first_token_s"] = time.time() - started_at()
for length in PROMPTS:
    firsts = [run(pipeline, length, seed, 1)[0] for seed in range(REPEATS + 1)]
    result[f"prefill_{length}_s"] = statistics.median(firsts[1:])
for depth in (0, DEPTH):
    seconds = run(pipeline, max(depth, 1), 0, STEPS + 1)[1:]
    if len(seconds) != STEPS:
        sys.exit(f"the pipeline reported {len(seconds)} steps, expected {STEPS}")
    result[f"decode_{depth}_s"] = statistics.median(seconds)
report(result)
