"""Fits the [fitted] part of m50.toml to the vendor's published figures, and to nothing else.

    python benchmarks/fit_m50.py            # prints the table of residuals
    python benchmarks/fit_m50.py --write    # also writes m50.toml and the table of docs/clock.md

The graphs are those of the compiler for the published shapes, without their weights. The loss is the sum of the squared
relative errors of the rows that take part. What a row is predicted to be by a fit without it says how well the model
predicts what it was not fitted to.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tcim_lite import _core
from tcim_lite.bench.device_time import pipeline_seconds
from tcim_lite.hmm import WeightEntry, encode_graph, packed_bytes
from tcim_lite.models.blocks.shards import shards_of
from tcim_lite.models.common.profiles import profile_for
from tcim_lite.models.compiler.graph import build_graph
from tcim_lite.models.compiler.graph_specs import GraphSpec
from tcim_lite.models.compiler.weights import weight_specs
from tcim_lite.models.families import read_config
from tcim_lite.models.weights.roles import ROPE_COS, ROPE_SIN
from tcim_lite.models.weights.spec import LinearSpec

ROOT = Path(__file__).parent.parent
PROFILE, PAGE = ROOT / "csrc/runtime/m50.toml", ROOT / "docs/clock.md"
CHUNK, CONTEXT = 256, 32768
SEARCH_STEPS = 40

# Where a search begins, and what a rate cannot exceed.
START = {
    "read_gb": 120.0,
    "linear_int8_tops": 30.0,
    "attention_tops": 10.0,
    "op_us": 30.0,
    "exchange_gb": 5.0,
    "exchange_us": 100.0,
    "stage_ms": 10.0,
}
LIMITS = {
    "read_gb": 127.14 * 1.024**3,  # what tools/bandwidth_perf measures, GiB/s
    "linear_int8_tops": 94.93,  # a convolution, tools/computing_perf
    "attention_tops": 79.61,
    "exchange_gb": 7.88,  # "theory" of tools/hm_check
}


def _shape(name: str, **changed: int) -> dict[str, object]:
    return json.loads((ROOT / "benchmarks" / "shapes" / name / "config.json").read_text()) | changed


MODELS = {
    "Qwen3-8B": _shape("qwen3-8b"),
    "Qwen3-14B": _shape(
        "qwen3-8b", hidden_size=5120, num_hidden_layers=40, num_attention_heads=40, intermediate_size=17408
    ),
    "Qwen2.5-7B": _shape("qwen2.5-7b"),
    "gpt-oss-20b": _shape("gpt-oss-20b"),
}


@dataclass(frozen=True)
class Row:
    """A published figure.

    Attributes:
        title: As the docs show it.
        seconds: Published.
        predict: From the seconds of a run: times(model, graph, depth, devices, stage of `stages`).
        why_not: Why it takes no part in the fit; "" if it does.
    """

    title: str
    seconds: float
    predict: Callable[[Model], float]
    why_not: str = ""


class Model:
    """The times of graphs under some parameters."""

    def __init__(self, parameters: Mapping[str, float]) -> None:
        self._profile = with_parameters(PROFILE.read_text(), parameters)
        self.stage = parameters["stage_ms"] * 1e-3

    def run(self, model: str, graph: str, depth: int, devices: int = 1, stages: int = 1, stage: int = 0) -> float:
        """Seconds of one run."""
        return _core.run_seconds(costs(model, graph, devices, stages, stage), depth, self._profile)

    def prefill(self, model: str, tokens: int, devices: int = 1, stages: int = 1) -> float:
        """Seconds for a prompt, chunk after chunk through all stages."""
        depths = range(0, tokens, CHUNK)
        runs = [[self.run(model, "prefill", at, devices, stages, stage) for at in depths] for stage in range(stages)]
        return pipeline_seconds(runs, self.stage if stages > 1 else 0.0)

    def decode(self, model: str, depth: int, devices: int = 1, stages: int = 1) -> float:
        """Seconds for a token."""
        runs = [[self.run(model, "decode", depth, devices, stages, stage)] for stage in range(stages)]
        return pipeline_seconds(runs, self.stage if stages > 1 else 0.0)


ROWS = (
    Row("Qwen3-8B, prefill 256", 0.12815, lambda m: m.prefill("Qwen3-8B", 256)),
    Row("Qwen3-8B, decode at 256 to 456", 0.04982, lambda m: m.decode("Qwen3-8B", 356)),
    Row("Qwen3-8B, prompt of 16k", 15.66, lambda m: m.prefill("Qwen3-8B", 16384)),
    Row("Qwen3-8B, prompt of 30k", 41.56, lambda m: m.prefill("Qwen3-8B", 30720)),
    Row("Qwen3-8B, prompt of 16k, 4 stages", 5.16, lambda m: m.prefill("Qwen3-8B", 16384, stages=4)),
    Row("Qwen3-8B, prompt of 30k, 4 stages", 12.23, lambda m: m.prefill("Qwen3-8B", 30720, stages=4)),
    Row("Qwen3-8B, decode at 30k, 4 stages", 0.12183, lambda m: m.decode("Qwen3-8B", 30720, stages=4)),
    Row("Qwen3-8B, prompt of 16k, 4 devices", 8.09, lambda m: m.prefill("Qwen3-8B", 16384, devices=4)),
    Row("Qwen3-8B, prompt of 30k, 4 devices", 18.23, lambda m: m.prefill("Qwen3-8B", 30720, devices=4)),
    Row("Qwen3-8B, prompt of 30720, 2 stages", 19.94, lambda m: m.prefill("Qwen3-8B", 30720, stages=2)),
    Row("Qwen3-8B, decode at 30720, 2 devices", 0.05637, lambda m: m.decode("Qwen3-8B", 30720, devices=2)),
    Row("Qwen2.5-7B, prefill 26 in a chunk", 0.09504, lambda m: m.prefill("Qwen2.5-7B", 26)),
    Row("Qwen2.5-7B, decode at 26 to 277", 0.04271, lambda m: m.decode("Qwen2.5-7B", 151)),
    Row("Qwen3-14B, decode at 1024 to 2048", 0.06585, lambda m: m.decode("Qwen3-14B", 1536)),
    Row(
        "Qwen3-14B, prompt of 1024",
        1.650,
        lambda m: m.prefill("Qwen3-14B", 1024),
        "half the operations per second of the 8B and 7B rows, which a model by shapes cannot give",
    ),
    Row(
        "Qwen3-VL-8B, decode at 211",
        0.07448,
        lambda m: m.decode("Qwen3-8B", 211),
        "the decode graph of Qwen3-8B but for the positions, and half as slow again as its row",
    ),
    Row(
        "Qwen3-VL-8B, prompt of 211",
        0.2282,
        lambda m: m.prefill("Qwen3-8B", 211),
        "the prefill graph of Qwen3-8B with image features added; what of the 157.4 ms of vision is in it is not said",
    ),
    Row(
        "gpt-oss-20b, prompt of 90",
        0.6166,
        lambda m: m.prefill("gpt-oss-20b", 90),
        "how the chip reads experts, and in which format, is not published",
    ),
    Row(
        "gpt-oss-20b, decode at 90 to 1449",
        0.05924,
        lambda m: m.decode("gpt-oss-20b", 770),
        "as above",
    ),
)
NOT_MODELLED = "Qwen-AgentWorld-35B-A3B (a hybrid graph, which the compiler does not make), vision of Qwen3-VL-8B"


@functools.cache
def costs(model: str, graph: str, devices: int, stages: int, stage: int, batch: int = 1) -> list[_core.GraphCost]:
    """Of a graph as `tcim-lite compile` makes it: w4a8h0_ssfp with a w8a8h1_sefp head."""
    config, profile = read_config(MODELS[model]), profile_for("w4a8h0_ssfp")
    each = config.num_layers // stages
    layers = range(stage * each, (stage + 1) * each) if stages > 1 else None
    tokens = CHUNK if graph == "prefill" else 1
    spec = GraphSpec(name=graph, tokens=tokens, batch=batch, layers=layers, ndevice=devices)
    found = []
    for shard in shards_of(config, devices):
        rope = (CONTEXT, config.head_dim // 2)
        entries = [_entry(name, profile.tensor_dtype, "dense", rope) for name in (ROPE_COS, ROPE_SIN)]
        for weight in weight_specs(config, profile):
            shape, rows = weight.shape, shard.rows(weight.role, weight.sections) if devices > 1 else None
            is_linear = isinstance(weight, LinearSpec)
            if rows is not None:
                cut = sum(map(len, rows))
                shape = (*shape[:-2], cut, shape[-1]) if is_linear else (*shape[:-1], cut)
            name = shard.weight_name(weight.role, weight.layer)
            entries.append(
                _entry(name, weight.dtype if is_linear else "float32", weight.format if is_linear else "dense", shape)
            )
        part = build_graph(config, profile, entries, spec, CONTEXT, shard)
        found.append(_core.graph_cost(encode_graph(part)))
    return found


def _entry(name: str, dtype: str, format: str, shape: tuple[int, ...]) -> WeightEntry:
    return WeightEntry(name, dtype, format, shape, packed_bytes(format, shape, dtype), bytes(32), 0, external=True)


def with_parameters(text: str, parameters: Mapping[str, float]) -> str:
    """A profile's text with other values of [fitted]."""
    for key, value in parameters.items():
        text, count = re.subn(rf"^{key} = \S+", f"{key} = {value!r}", text, flags=re.MULTILINE)
        assert count == 1, key
    return text


def fit(rows: tuple[Row, ...]) -> dict[str, float]:
    """The parameters of the least sum of squared relative errors: Levenberg and Marquardt over their logarithms."""
    keys = list(START)
    most = np.log([LIMITS.get(key, np.inf) for key in keys])

    def errors(x: NDArray[np.float64]) -> NDArray[np.float64]:
        model = Model(dict(zip(keys, np.exp(x).tolist(), strict=True)))
        return np.array([row.predict(model) / row.seconds - 1 for row in rows])

    x = np.minimum(np.log(list(START.values())), most)
    found, damping, delta = errors(x), 1e-2, 1e-5
    for _ in range(SEARCH_STEPS):
        slopes = np.stack([(errors(x + delta * unit) - found) / delta for unit in np.eye(len(x))], axis=1)
        square = slopes.T @ slopes
        free = ~((x >= most) & (slopes.T @ found < 0))  # not those at their limit that want to go beyond
        step = np.zeros_like(x)
        part = square[np.ix_(free, free)] + damping * np.eye(int(free.sum()))
        step[free] = -np.linalg.solve(part, (slopes.T @ found)[free])
        there = np.minimum(x + np.clip(step, -0.5, 0.5), most)
        tried = errors(there)
        if tried @ tried < found @ found:
            gained = found @ found - tried @ tried
            x, found, damping = there, tried, damping / 4
            if gained < 1e-9:
                break
        else:
            damping *= 8
    return dict(zip(keys, (float(f"{value:.4g}") for value in np.exp(x)), strict=True))


def table(parameters: Mapping[str, float]) -> str:
    """The residuals in Markdown."""
    taking_part = tuple(row for row in ROWS if not row.why_not)
    model = Model(parameters)
    lines = ["| figure | published, ms | modelled, ms | error | fitted without it | |", "|---|---:|---:|---:|---:|---|"]
    for row in ROWS:
        predicted = row.predict(model)
        alone = ""
        if row in taking_part:
            without = Model(fit(tuple(other for other in taking_part if other is not row)))
            alone = f"{row.predict(without) / row.seconds - 1:+.1%}"
        error = f"{predicted / row.seconds - 1:+.1%}"
        why = f"not fitted: {row.why_not}" if row.why_not else ""
        cells = (row.title, f"{row.seconds * 1e3:.2f}", f"{predicted * 1e3:.2f}", error, alone, why)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write m50.toml and the table of docs/clock.md")
    args = parser.parse_args()
    parameters = fit(tuple(row for row in ROWS if not row.why_not))
    for key, value in parameters.items():
        print(f"{key} = {value}" + ("  # at its limit" if value >= 0.999 * LIMITS.get(key, np.inf) else ""))
    residuals = table(parameters)
    print(f"\n{residuals}\n\nNot modelled: {NOT_MODELLED}.")
    if args.write:
        PROFILE.write_text(with_parameters(PROFILE.read_text(), parameters))
        text = PAGE.read_text()
        begin, end = "<!-- residuals -->\n", "\n<!-- end -->"
        head, rest = text.split(begin)
        PAGE.write_text(head + begin + residuals + end + rest.split(end)[1])


if __name__ == "__main__":
    main()
