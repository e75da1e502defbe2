"""What every side measures, in one way: the same prompts, depths and counts, greedy tokens, medians.

Runs in each engine's own environment: nothing but the standard library here.
"""

import json
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

PROMPTS = (256, 512)
DEPTH = 1024  # of the second decode
QUICK = os.environ.get("COMPARE_QUICK") == "1"  # to see that a side works
STEPS = 4 if QUICK else 48  # decoded at each depth
REPEATS = 1 if QUICK else 3  # of each prompt, after one that is not counted
CONTEXT = 2048
PROMPT_TOKENS = 30_000  # of which prompts are made; every vocabulary has more


class Side(Protocol):
    """An engine with its model loaded and one cache."""

    def prefill(self, tokens: Sequence[int]) -> int:
        """Empties the cache, runs the prompt and returns the most likely next token."""

    def decode(self, token: int, position: int) -> int:
        """Runs one token and returns the most likely next one."""


def prompt(length: int, seed: int = 0) -> list[int]:
    """Tokens that no cache of an engine has seen: each seed has its own."""
    return random.Random(seed * 10_000 + length).choices(range(PROMPT_TOKENS), k=length)


def started_at() -> float:
    """When this process was started, seconds since the epoch, by whoever started it."""
    return float(os.environ["COMPARE_STARTED"])


def memory(field: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM the peak. Mapped files count as far as they are in memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"no {field} in /proc/self/status")


def measure(side: Side, depths: Sequence[int] = (0, DEPTH)) -> dict:
    """All figures of a loaded engine, in seconds: prompts, and a token at each depth. Depth 0 is after one token."""
    side.prefill(prompt(PROMPTS[0]))
    result = {"first_token_s": time.time() - started_at()}
    for length in PROMPTS:
        seconds = []
        for seed in range(REPEATS + 1):
            tokens = prompt(length, seed)
            begin = time.perf_counter()
            side.prefill(tokens)
            seconds.append(time.perf_counter() - begin)
        result[f"prefill_{length}_s"] = statistics.median(seconds[1:])
    for depth in depths:
        result[f"decode_{depth}_s"] = decode_seconds(side, depth)
    return result


def decode_seconds(side: Side, depth: int) -> float:
    """Median of a token after `depth` tokens, or after one."""
    position = max(depth, 1)
    token, seconds = side.prefill(prompt(position)), []
    for step in range(STEPS):
        begin = time.perf_counter()
        token = side.decode(token, position + step)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def report(result: dict) -> None:
    """Hands the figures to compare_cpu.py: the last line of standard output."""
    sys.stdout.flush()
    print("\n" + json.dumps(result | {"peak_bytes": memory("VmHWM")}), flush=True)
