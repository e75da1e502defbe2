"""What a thousand cards would serve, by the timing model: a calculation, for docs/scale-out.md.

    python benchmarks/plan_scale_out.py            # prints the tables
    python benchmarks/plan_scale_out.py --write    # also writes them into docs/scale-out.md

Nothing is measured but HOST_MS. A unit is what runs one copy of a model: a card, devices that share a graph, or stages.
Its slots are full, prefill chunks and decode steps take turns on it, as the schedulers here let them.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from fit_m50 import CHUNK, MODELS, costs

from tcim_lite import _core

PAGE = Path(__file__).parent.parent / "docs" / "scale-out.md"
CARDS = 1000
PROMPT, ANSWER = 1024, 256  # tokens of a request
HOST_MS = 2.0  # of vLLM for a step, measured here (docs/vllm.md); a unit's host does nothing else meanwhile
SPARE = 0.05  # cards kept free for units that have lost one


@dataclass(frozen=True)
class Unit:
    """One copy of a model.

    Attributes:
        model: As in `fit_m50.MODELS`.
        slots: B of its decode graph.
        devices: That share every graph (`--ndevice`).
        stages: Of a pipeline, a card each (`--pipeline`).
    """

    model: str
    slots: int
    devices: int = 1
    stages: int = 1

    @property
    def cards(self) -> int:
        return self.devices * self.stages

    def _runs(self, graph: str, depth: int) -> list[float]:
        """Seconds of a run on each stage, with the hand-over."""
        handover = _core.chip_profile()["stage_ms"] * 1e-3 if self.stages > 1 else 0.0
        batch = self.slots if graph == "decode" else 1
        found = (costs(self.model, graph, self.devices, self.stages, stage, batch) for stage in range(self.stages))
        return [_core.run_seconds(cost, depth, None) + handover for cost in found]

    @property
    def first_token(self) -> float:
        """Seconds of a prompt on a free unit: chunks follow one another through the stages."""
        chunks = [self._runs("prefill", depth) for depth in range(0, PROMPT, CHUNK)]
        return sum(max(runs) for runs in chunks[:-1]) + sum(chunks[-1]) + HOST_MS * 1e-3 * len(chunks)

    @property
    def step(self) -> float:
        """Seconds of a decode step in the middle of the answers; a token waits for the one before, so stages add up."""
        return sum(self._runs("decode", PROMPT + ANSWER // 2)) + HOST_MS * 1e-3

    @property
    def requests_per_second(self) -> float:
        """With every slot in use: a request costs its own prefill and its share of the steps."""
        return 1 / (self.first_token + ANSWER * self.step / self.slots)


UNITS = (
    Unit("Qwen3-8B", 1),
    Unit("Qwen3-8B", 4),
    Unit("Qwen3-8B", 8),
    Unit("Qwen3-8B", 16),
    Unit("Qwen3-8B", 8, devices=2),
    Unit("Qwen3-8B", 8, devices=4),
    Unit("Qwen3-8B", 8, stages=2),
    Unit("Qwen3-8B", 8, stages=4),
    Unit("Qwen3-14B", 8),
    Unit("Qwen3-14B", 8, stages=2),
)


def cache_gb(unit: Unit) -> float:
    """10^9 bytes of caches in float16 for prompt and answer in every slot, on one card."""
    config = MODELS[unit.model]
    sizes = [config[key] for key in ("num_hidden_layers", "num_key_value_heads", "head_dim")]
    layers, heads, size = (int(str(each)) for each in sizes)
    return 2 * 2 * layers * heads * size * (PROMPT + ANSWER) * unit.slots / unit.cards / 1e9


def table() -> str:
    """The units in Markdown."""
    lines = [
        "| model | unit | slots | first token, ms | decode step, ms | tokens/s of a request | caches on a card, GB "
        f"| requests/s of a unit | of {CARDS} cards | a unit lost costs |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for unit in UNITS:
        way = (
            f"{unit.devices} devices" if unit.devices > 1 else f"{unit.stages} stages" if unit.stages > 1 else "1 card"
        )
        units = int(CARDS * (1 - SPARE)) // unit.cards
        rate = unit.requests_per_second
        cells = (
            unit.model,
            way,
            unit.slots,
            f"{unit.first_token * 1e3:.0f}",
            f"{unit.step * 1e3:.1f}",
            f"{1 / unit.step:.1f}",
            f"{cache_gb(unit):.2f}",
            f"{rate:.3f}",
            f"{rate * units:.0f}",
            f"{1 / units:.2%}",
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table of docs/scale-out.md")
    args = parser.parse_args()
    found = table()
    print(found)
    if args.write:
        text = re.sub(r"(<!-- units -->\n).*?(\n<!-- end -->)", rf"\g<1>{found}\g<2>", PAGE.read_text(), flags=re.S)
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
