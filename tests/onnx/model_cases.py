"""Whole networks (tests/onnx/zoo) against onnxruntime's float32: in float32, float16 and w8a8h1_sefp.

    python tests/onnx/model_cases.py [--only TEXT] [--small] [--write]

--write puts the table of the full networks into docs/onnx.md.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from zoo import NETWORKS, build, export
from zoo.build import float32_bounds

from tcim_lite.models.onnx.compile import OnnxOptions, compile_onnx
from tcim_lite.runtime import Module

PAGE = Path(__file__).parents[2] / "docs/onnx.md"
PROFILES = ("float32", "float16", "w8a8h1_sefp")
_TABLE = re.compile(r"(?<=<!-- models: tests/onnx/model_cases.py -->\n)(.*?)(?=\n<!-- models end -->)", re.DOTALL)


@dataclass(frozen=True)
class Result:
    """Of one network.

    Attributes:
        nodes: Of the ONNX graph.
        parameters: Elements of its weights.
        error: Per output, the largest difference of float32 from onnxruntime over the bound; at most 1 passes.
        cosines: By profile, per output, the cosine with onnxruntime's.
    """

    name: str
    nodes: int
    parameters: int
    error: tuple[float, ...]
    cosines: dict[str, tuple[float, ...]]


def measure(
    name: str,
    small: bool,
    dynamo: bool = False,
    profiles: Sequence[str] = PROFILES,
    bounds: Sequence[float] | None = None,
) -> Result:
    """Exports a network and runs it here and there; `bounds` are those of float32 if they are known already."""
    import onnxruntime

    network = NETWORKS[name]
    module, x = build(network, network.small if small else network.full)
    model = export(module, x, 18 if dynamo else 17, dynamo)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if small:
        options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        onnx.save(model, path)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        wanted = session.run(None, {"x": x})
        del session
        names = [info.name for info in model.graph.output]
        got = {}
        for profile in profiles:
            result = compile_onnx(OnnxOptions(model=path, output=Path(folder) / profile, quant=profile))
            got[profile] = _run(result.path, x, names)
    error: tuple[float, ...] = ()
    if "float32" in got:
        bounds = bounds or float32_bounds(module, x)
        error = tuple(float(np.abs(a - b).max()) / c for a, b, c in zip(got["float32"], wanted, bounds, strict=True))
    cosines = {
        profile: tuple(cosine(a, b) for a, b in zip(outputs, wanted, strict=True)) for profile, outputs in got.items()
    }
    parameters = sum(parameter.numel() for parameter in module.parameters())
    return Result(name, len(model.graph.node), parameters, error, cosines)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Of two arrays as vectors, in float64."""
    x, y = a.ravel().astype(np.float64), b.ravel().astype(np.float64)
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def _run(path: Path, x: np.ndarray, names: Sequence[str]) -> list[np.ndarray]:
    module = Module.load(str(path))
    module.set_input("x", x.astype(np.int32) if x.dtype.kind == "i" else x)
    module.run(sync=True)
    return [module.get_output(name).numpy().astype(np.float32) for name in names]


def table(results: Sequence[Result]) -> str:
    """The rows of the page."""
    lines = [
        "| network | nodes | million parameters | float32: error / bound | float16: cosine | w8a8h1_sefp: cosine |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        cells = [result.name, str(result.nodes), f"{result.parameters / 1e6:.1f}"]
        cells.append(" / ".join(f"{ratio:.2f}" for ratio in result.error))
        for profile, digits in (("float16", 7), ("w8a8h1_sefp", 4)):
            cells.append(" / ".join(f"{value:.{digits}f}" for value in result.cosines[profile]))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def printed() -> dict[str, tuple[list[float], list[float]]]:
    """The cosines of float16 and of w8a8h1_sefp that the page has, by network."""
    found = _TABLE.search(PAGE.read_text(encoding="utf-8"))
    rows = [line.strip("| ").split(" | ") for line in (found[0].splitlines()[2:] if found else [])]
    return {row[0]: tuple([float(cell) for cell in row[i].split(" / ")] for i in (4, 5)) for row in rows}


def results(only: str, small: bool) -> Iterator[Result]:
    """Of every network whose name contains `only`."""
    return (measure(name, small) for name in NETWORKS if only in name)


def main() -> int:
    """Prints a row per network; status 1 if float32 is out of its bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="networks whose name contains TEXT")
    parser.add_argument("--small", action="store_true", help="the small cases, which every run of the tests takes")
    parser.add_argument("--write", action="store_true", help="put the table into docs/onnx.md")
    args = parser.parse_args()
    torch.set_num_threads(2)
    done = []
    for result in results(args.only, args.small):
        print(table([result]).splitlines()[-1], flush=True)
        done.append(result)
    if args.write:
        PAGE.write_text(_TABLE.sub(lambda _: table(done), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 1 if any(max(result.error) > 1 for result in done) else 0


if __name__ == "__main__":
    sys.exit(main())
