"""What `tcim-lite diff` says of planted errors: `python tests/faults/located.py > docs/located-faults.md`.

With names of errors, only those are tried and printed. A seeded fault is tried on the runs of `RUNS_OF` until one
differs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "llm")]

from catalogue import FAULTS
from llm_packages import FAMILIES, compile_package
from planted import move_position, plant, wrong_weight
from reach import EXPECTED, OUT_OF_REACH, RUNS_OF

import tcim_lite
from tcim_lite.diff import side as side_of_diff
from tcim_lite.diff.dump import Calls
from tcim_lite.diff.locate import Walk
from tcim_lite.diff.side import Side
from tcim_lite.errors import TcimError
from tcim_lite.hmm import read
from tcim_lite.llm import Package

PAGE = Path(__file__).parents[2] / "docs/located-faults.md"
LEAST = 0.95  # of the faults that change a run
MODELS = Path(tcim_lite.__file__).parent / "conformance/models"
# Single graphs of the conformance suite, for what no prompt shows: the file, and values of its inputs.
GRAPHS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "SiluMul": ("silu_mul", {}),
    "RMSNorm": ("norm", {"x": 1e-4}),
    "Rope": ("rope_positions", {"position_ids": [7, 2, 9, 0]}),
    "experts of equal logits": ("experts", {"logits": 0}),
    "attention with a mask": ("attention_mask_decode", {}),
    "batch": ("llm_decode_batch", {}),
}

INTRODUCTION = """# What diff locates

`tcim-lite diff` on {count} planted errors: the [seeded faults](seeded-faults.md) of the emulator, and errors written
into packages. {changed} of them change a tensor of a run; of those diff names the exact op of {located} ({share:.0%}).
An error that is built into the emulator is looked for between two builds, one in a package between two packages; the
packages are small, with random weights, and every run is the same bit for bit on both sides but for the error.
The right op is the very op whose weight, table or layer is wrong. A fault of the emulator is in every op of its kind:
there, any op of that kind is right. Three faults are in no op: a length that is not obeyed, rows of outputs that are
not delivered, an input that changes after it was given. There the name of that input or of such an output is right.
This page is generated: `python tests/faults/located.py > docs/located-faults.md`. `tests/faults/test_located.py` holds
it: a sample of its rows is tried again, and with `TCIM_LITE_LOCATE=all` every row.
"""


@dataclass(frozen=True)
class Row:
    """One planted error.

    Attributes:
        name: Of the fault, or of what is wrong in the package.
        run: The run that it changes, "" if none.
        op: What diff named, "" if nothing.
        right: Whether that is the op with the error.
        text: Why no run changes, or what diff said otherwise.
    """

    name: str
    run: str = ""
    op: str = ""
    right: bool = False
    text: str = ""


class Packages:
    """Packages that runs are made of, compiled when first used."""

    OPTIONS: Mapping[str, Mapping[str, object]] = {
        "chat": {"quant": "w4a8h0_ssfp"},
        "float": {"quant": "float16"},
        "positions": {"quant": "w4a8h0_ssfp", "position_ids": True},
        "experts": {"family": "qwen3_moe", "quant": "w4a8h0_ssfp"},
        "float experts": {"family": "qwen3_moe", "quant": "float16"},
        "gpt-oss": {"family": "gpt_oss", "quant": "w4a8h0_ssfp"},
        "masks": {"family": "gpt_oss", "quant": "w4a8h0_ssfp", "masks": True},
        "all logits": {"quant": "w4a8h0_ssfp", "all_logits": True},
        "long": {"quant": "w4a8h0_ssfp", "prefill_length": 256, "context_length": 1024},
    }
    LONG = 600  # tokens: more than two blocks of the attention

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: dict[str, Package] = {}

    def package(self, run: str) -> Package:
        if run not in self.made:
            import json

            options = {"prefill_length": 16, "context_length": 64, **self.OPTIONS[run]}
            family = str(options.pop("family", "qwen3"))
            checkpoint = self.folder / run.replace(" ", "_")
            checkpoint.mkdir(parents=True)
            (checkpoint / "config.json").write_text(json.dumps(FAMILIES[family].tiny_config))
            self.made[run] = compile_package(checkpoint, checkpoint / "out", random_weights=True, seed=7, **options)
        return self.made[run]

    def calls(self, run: str) -> Calls:
        """A prompt of two or three chunks, then three tokens."""
        return Calls([3 + i % 300 for i in range(self.LONG)] if run == "long" else list(range(5, 26)), [], 3)


def calls_of_graph(path: Path, folder: Path, given: Mapping[str, object]) -> list[str]:
    """Golden files of the inputs of a graph: those given, lengths of three and one token, or random numbers."""
    folder.mkdir()
    rng = np.random.default_rng(11)
    graph = read(path).graph
    assert graph is not None
    for value in (graph.values[id_] for id_ in graph.inputs):
        lengths = {"valid_length": 3, "current_length": 1}
        length = next((rows for name, rows in lengths.items() if value.name.startswith(name)), None)
        chosen = given.get(value.name, rng.standard_normal(value.shape) / 4 if length is None else length)
        array = np.broadcast_to(np.asarray(chosen, value.dtype), value.shape)
        np.save(folder / f"hmquant_{path.stem}_{value.name}_input.npy", array)
    return [str(folder)]


def look(
    packages: Packages, run: str, other: Package | Path, environments: tuple[dict[str, str], dict[str, str]]
) -> Row:
    """Compares; a row without a name, and without a run if nothing differs."""
    folder = Path(tempfile.mkdtemp(dir=packages.folder))
    try:
        calls: Calls | list[str]
        if run in GRAPHS:
            subject: Package | Path = MODELS / f"{GRAPHS[run][0]}.hmm"
            assert isinstance(subject, Path)
            calls = calls_of_graph(subject, folder / "inputs", GRAPHS[run][1])
        else:
            subject, calls = packages.package(run), packages.calls(run)
        right = Side(subject, environments[0], folder / "a")
        walk = Walk(right, Side(other, environments[1], folder / "b"), calls, "exact")
        report = walk.run()
    except subprocess.TimeoutExpired:
        return Row("", run, "", False, "the run fails: it hangs")
    except TcimError as error:
        said = re.sub(r"^.*failed with |; compare packages .*", "", str(error), flags=re.S)
        return Row("", run, "", False, f"the run fails: {said}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    differs = any(
        point.is_result and point.whole is not None and not point.whole.equal
        for points in report.points for point in points
    )  # fmt: skip
    if not differs:
        return Row("")
    if report.finding is None:
        return Row("", run)
    return Row("", run, f"{report.finding.op} {report.finding.name}")


def try_seeded(packages: Packages, name: str, seeded: Path) -> Row:
    """The row of a seeded fault."""
    both = {"PYTHONPATH": str(seeded)}
    for run in RUNS_OF.get(name, ("chat",)):
        subject = MODELS / f"{GRAPHS[run][0]}.hmm" if run in GRAPHS else packages.package(run)
        found = look(packages, run, subject, (both, {**both, "TCIM_LITE_SEEDED_FAULT": name}))
        if found.run:
            kinds = EXPECTED.get(name, ())
            right = bool(found.op) and not {found.op, found.op.split(" ")[0]}.isdisjoint(kinds)
            return Row(name, found.run, found.op, right, found.text)
    return Row(name, text=OUT_OF_REACH.get(name, "UNEXPLAINED"))


def in_packages(packages: Packages) -> dict[str, Callable[[], Row]]:
    """Errors written into a package: one wrong weight, one wrong position, swapped layers."""
    source = packages.package("chat")
    graph = read(source.prefill_path).graph
    assert graph is not None
    tried: dict[str, Callable[[], Row]] = {}

    def planted(name: str, expected: str, make: Callable[[Path], Path]) -> None:
        def run() -> Row:
            folder = Path(tempfile.mkdtemp(dir=packages.folder))
            found = look(packages, "chat", Package.open(make(folder / "bad")), ({}, {}))
            shutil.rmtree(folder)
            return Row(name, found.run, found.op, found.op == expected, found.text)

        tried[name] = run

    for op in graph.ops:
        result = graph.values[op.outputs[0]].name
        for id_ in op.inputs:
            value = graph.values[id_]
            if value.kind == "weight" and op.kind in ("Linear", "RMSNorm") and f"weight {value.name}" not in tried:
                weight = value.name
                planted(f"weight {weight}", f"{op.kind} {result}",
                        lambda target, weight=weight: plant(source.folder, target, {weight: wrong_weight}))  # fmt: skip
        if op.kind == "Rope":
            planted(f"position {result}", f"Rope {result}",
                    lambda target, result=result: move_position(source.folder, target, result))  # fmt: skip
    names = [value.name for value in graph.values if value.kind == "weight" and value.name.startswith("layers.")]
    swap = {name: re.sub(r"^layers\.([01])", lambda m: f"layers.{1 - int(m[1])}", name) for name in names}
    planted("layers 0 and 1 swapped", "Linear layers.0.attn.qkv", lambda target: plant(source.folder, target, {}, swap))
    for part, value in (("self_attn.o_proj", "attn.out"), ("mlp.down_proj", "mlp.out"), ("mlp.gate_up", "mlp.gate_up")):
        some = {name: other for name, other in swap.items() if part in name}
        planted(f"{part} of layers 0 and 1 swapped", f"Linear layers.0.{value}",
                lambda target, some=some: plant(source.folder, target, {}, some))  # fmt: skip
    return tried


def rows_of(names: list[str], tell: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """The rows of some errors, or of all."""
    from seeded_build import seeded_package

    os.environ.setdefault("TCIM_LITE_THREADS", "1")
    side_of_diff._LONGEST = 60.0
    with tempfile.TemporaryDirectory() as folder:
        packages = Packages(Path(folder))
        tried: dict[str, Callable[[], Row]] = dict(in_packages(packages))
        seeded = seeded_package() if any(name in FAULTS for name in names or FAULTS) else Path()
        for name in FAULTS:
            tried[name] = lambda name=name: try_seeded(packages, name, seeded)  # type: ignore[misc]
        rows = []
        for name in names or tried:
            rows.append(tried[name]())
            tell(rows[-1])
        return rows


def page(rows: list[Row]) -> str:
    """The page in Markdown."""
    changed = [row for row in rows if row.run and not row.text.startswith("the run fails")]
    located = [row for row in changed if row.right]
    parts = [
        INTRODUCTION.format(
            count=len(rows), changed=len(changed), located=len(located), share=len(located) / max(1, len(changed))
        )
    ]
    parts.append("## Errors that change a run\n\n| error | run | diff names | the right op |\n|---|---|---|---|")
    for row in changed:
        named = f"`{row.op}`" if row.op else row.text
        parts.append(f"| `{row.name}` | {row.run} | {named} | {'yes' if row.right else 'no'} |")
    parts.append(
        "\nThe runs: `chat` is a Qwen3 in w4a8h0_ssfp, a prompt of 21 tokens in chunks of 16, then three tokens; "
        "`float` is\nfloat16; `experts` a Qwen3 MoE; `gpt-oss` has windows, sinks and experts, `masks` its two masks "
        "besides; `positions`\ntakes position ids; `long` has a prompt of 600 tokens; `all logits` gives those of "
        "every row. The others are single\n"
        "graphs of the conformance suite on chosen inputs: " + ", ".join(f"`{run}`" for run in GRAPHS) + ".\n"
    )
    failing = [row for row in rows if row.text.startswith("the run fails")]
    if failing:
        parts.append("## Errors that end a run\n\nThe error itself names the call.\n\n| error | |\n|---|---|")
        parts += [f"| `{row.name}` | {row.text} |" for row in failing]
        parts.append("")
    parts.append("## Out of reach\n\nThese change no tensor of a run that diff makes.\n\n| error | why |\n|---|---|")
    parts += [f"| `{row.name}` | {row.text} |" for row in rows if not row.run]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    wanted = sys.argv[1:]
    found = rows_of(wanted, lambda row: print(row, file=sys.stderr, flush=True))
    if not wanted:
        print(page(found), end="")
