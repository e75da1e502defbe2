"""Latencies under load: requests that arrive at a rate, continuous batching against static.

    python benchmarks/bench_serving.py OUT --rate 4 --requests 100             # Poisson arrivals, exponential lengths
    python benchmarks/bench_serving.py OUT --lengths FILE --rate 0 --svg X.svg # all at once, lengths of a file

FILE has `prompt_tokens,answer_tokens` in each line. The engine is driven in this process, without HTTP; for the server,
any load tool for OpenAI's API does. Times count from when a request should have arrived, so a step that is under way is
part of its wait. Answers are greedy and go on to their length whatever the tokens are.
"""

import argparse
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tcim_lite.bench import machine_name
from tcim_lite.llm.engine import Engine, SamplingParams

WHAT = {"ttft": "time to the first token", "between": "between two tokens", "whole": "arrival to the last token"}
QUANTILES = (50, 90, 99)


@dataclass
class Load:
    """Requests to come: seconds of arrival, lengths [N] of prompts and answers in tokens."""

    arrivals: np.ndarray
    prompts: np.ndarray
    answers: np.ndarray


@dataclass
class Result:
    """Seconds of every request (`ttft`, `whole`) and of every token after the first (`between`)."""

    mode: str
    ttft: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    seconds: float = 0.0
    tokens: int = 0
    decode_steps: int = 0
    busy: float = 0.0

    def summary(self) -> dict[str, object]:
        percentiles = {
            name: {f"p{q}": float(np.percentile(getattr(self, name) or [0.0], q)) for q in QUANTILES} for name in WHAT
        }
        rate = self.tokens / self.seconds
        counts = {"tokens": self.tokens, "decode_steps": self.decode_steps, "slots_busy": self.busy}
        return {"mode": self.mode, "seconds": self.seconds, "tokens_per_s": rate, **counts, **percentiles}


def make_load(args: argparse.Namespace, context: int) -> Load:
    """The requests of the command line; equal seeds give equal ones."""
    rng = np.random.default_rng(args.seed)
    if args.lengths is not None:
        rows = np.loadtxt(args.lengths, np.int64, delimiter=",", ndmin=2)
        if rows.shape[1] != 2 or rows.min() < 1:
            raise SystemExit(f"error: {args.lengths}: expected lines such as 120,40: tokens of a prompt and its answer")
        prompts, answers = rows.T
    else:
        means = (args.prompt_tokens, args.answer_tokens)
        prompts, answers = (1 + rng.exponential(mean - 1, args.requests).astype(np.int64) for mean in means)
        prompts = np.minimum(prompts, context // 2)
        answers = np.minimum(answers, context - prompts)
    if (too_long := prompts + answers > context + 1).any():
        raise SystemExit(f"error: request {int(too_long.argmax())} is longer than the context of {context} tokens")
    gaps = rng.exponential(1 / args.rate, len(prompts)) if args.rate else np.zeros(len(prompts))
    return Load(np.cumsum(gaps), prompts, answers)


def measure(args: argparse.Namespace, load: Load, *, static: bool) -> Result:
    """Answers a load with an engine of its own."""
    engine = Engine.open(
        args.package,
        name=args.name,
        static=static,
        chunks_per_step=args.chunks_per_step or None,
        max_waiting=None,
        reuse_prefixes=False,
    )
    rng = np.random.default_rng(args.seed + 1)
    prompts = [rng.integers(0, engine.slots.vocab_size, count).tolist() for count in load.prompts]
    engine.add(prompts[0], SamplingParams(max_tokens=2, ignore_eos=True), request_id="warm-up")
    while engine.has_work:
        engine.step()
    result, steps, tokens = Result("static" if static else "continuous"), engine.stats.decode_steps, 0
    tokens_before, coming, last = engine.stats.decode_tokens, 0, {}
    begin = time.perf_counter()
    while coming < len(prompts) or engine.has_work:
        now = time.perf_counter() - begin
        while coming < len(prompts) and load.arrivals[coming] <= now:
            params = SamplingParams(max_tokens=int(load.answers[coming]), ignore_eos=True)
            engine.add(prompts[coming], params, request_id=str(coming))
            coming += 1
        if not engine.has_work:
            time.sleep(load.arrivals[coming] - now)
            continue
        for event in engine.step():
            now, number = time.perf_counter() - begin, int(event.request_id)
            if event.finish_reason == "error":
                raise SystemExit(f"error: request {number}: {event.error}")
            for _ in event.token_ids:
                if number in last:
                    result.between.append(now - last[number])
                else:
                    result.ttft.append(now - load.arrivals[number])
                last[number] = now
                tokens += 1
            if event.finish_reason is not None:
                result.whole.append(now - load.arrivals[number])
    result.seconds, result.tokens = time.perf_counter() - begin, tokens
    result.decode_steps = engine.stats.decode_steps - steps
    decoded = engine.stats.decode_tokens - tokens_before
    result.busy = decoded / max(1, result.decode_steps * len(engine.slots))
    return result


def table(results: list[Result]) -> str:
    """Percentiles in ms, a line for each mode and kind of time."""
    lines = [f"{'ms':12}{'':28}" + "".join(f"{f'p{q}':>10}" for q in QUANTILES)]
    for result in results:
        for name, text in WHAT.items():
            values = np.percentile(getattr(result, name) or [0.0], QUANTILES) * 1e3
            lines.append(f"{result.mode:12}{text:28}" + "".join(f"{value:10.1f}" for value in values))
    for result in results:
        lines.append(
            f"{result.mode}: {result.tokens} tokens in {result.seconds:.2f} s, {result.tokens / result.seconds:.0f} a "
            f"second, {result.decode_steps} decode steps, slots busy {result.busy:.0%}"
        )
    return "\n".join(lines)


def svg(results: list[Result], title: str) -> str:
    """A panel for each kind of time: the share of requests or tokens (upwards) that took at most so long."""
    width, height, colours = 300, 200, ("#1b6ca8", "#d1495b")
    parts = [f'<text x="20" y="22" font-size="14">{title}</text>']
    for panel, (name, text) in enumerate(WHAT.items()):
        left, top = 20 + panel * (width + 30), 60
        longest = max(max(getattr(result, name) or [0.0]) for result in results) or 1.0
        parts.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#999"/>')
        parts.append(f'<text x="{left}" y="{top - 8}">{text}</text>')
        parts.append(f'<text x="{left}" y="{top + height + 16}">0</text>')
        end = f"{longest * 1e3:.0f} ms"
        parts.append(f'<text x="{left + width}" y="{top + height + 16}" text-anchor="end">{end}</text>')
        for result, colour in zip(results, colours, strict=False):
            values = np.percentile(getattr(result, name) or [0.0], np.arange(101))
            points = " ".join(
                f"{left + value / longest * width:.1f},{top + height - share / 100 * height:.1f}"
                for share, value in enumerate(values)
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for number, (result, colour) in enumerate(zip(results, colours, strict=False)):
        parts.append(f'<text x="{20 + 110 * number}" y="300" fill="{colour}">{result.mode}</text>')
    size = 'width="1000" height="310" font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n' + "\n".join(parts) + "\n</svg>\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", metavar="PACKAGE", help="folder that `tcim-lite compile --batch B` wrote")
    parser.add_argument("--name", help="prefix of the files, when the folder holds several packages")
    parser.add_argument("--rate", type=float, default=4.0, help="requests a second; 0: all at once (%(default)s)")
    parser.add_argument("--requests", type=int, default=50, help="how many, without --lengths (%(default)s)")
    parser.add_argument("--prompt-tokens", type=int, default=100, help="mean of an exponential (%(default)s)")
    parser.add_argument("--answer-tokens", type=int, default=60, help="the same for answers (%(default)s)")
    parser.add_argument("--lengths", type=Path, metavar="FILE", help="lines prompt_tokens,answer_tokens")
    parser.add_argument("--mode", choices=("both", "continuous", "static"), default="both", help="(%(default)s)")
    parser.add_argument(
        "--chunks-per-step", type=int, default=1, metavar="K", help="0: all that is admitted (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw how the times spread")
    parser.add_argument("--json", action="store_true", help="print seconds as JSON")
    args = parser.parse_args()
    if args.rate < 0 or args.requests < 1 or min(args.prompt_tokens, args.answer_tokens) < 1:
        parser.error("--rate is 0 or more, the counts are 1 or more")
    context = Engine.open(args.package, name=args.name).slots.context_length
    load = make_load(args, context)
    modes = ("continuous", "static") if args.mode == "both" else (args.mode,)
    results = [measure(args, load, static=mode == "static") for mode in modes]
    rate = f"{args.rate:g} requests a second" if args.rate else "all requests at once"
    title = f"{len(load.prompts)} requests, {rate}, {machine_name()}"
    if args.svg is not None:
        args.svg.write_text(svg(results, title), encoding="utf-8")
    if args.json:
        print(json.dumps({"load": title, "results": [result.summary() for result in results]}, indent=2))
    else:
        print(f"{title}\n{table(results)}")


if __name__ == "__main__":
    main()
