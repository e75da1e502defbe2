"""The node cases of onnx.backend.test, run through the compiler and the runtime in float32: the outside judge.

    python tests/onnx/node_cases.py [--only TEXT] [--verbose]

runs all of them and prints what passes, what is out of scope and why, and what fails. Operands that the compiler needs
as constants (axes, shapes, parameters of a convolution ...) are graph inputs in these cases; they are baked in.
"""

from __future__ import annotations

import argparse
import functools
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from node_scope import OUT_OF_SCOPE, reason_of

from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.models.onnx.read import OPSETS
from tcim_lite.runtime import Module

# Operands that must be constants, by op; everything else is fed at run time.
CONSTANT_OPERANDS = {
    "CausalConvWithState": (1, 2), "Clip": (1, 2), "Conv": (1, 2),
    "ConvTranspose": (1, 2), "Expand": (1,), "Pad": (1, 2, 3), "Reshape": (1,), "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4), "Split": (1,), "Squeeze": (1,),
    "Tile": (1,), "TopK": (1,), "Trilu": (1,), "Unsqueeze": (1,), "ConstantOfShape": (0,), "Range": (0, 1, 2),
    "OneHot": (0, 1, 2), "CumSum": (1,), "CumProd": (1,), "MaxUnpool": (2,), "CastLike": (1,),
    "Dropout": (1,), "Compress": (1,), "ReverseSequence": (1,),
    "ScatterElements": (1,), "ScatterND": (1,), "AffineGrid": (1,), "GridSample": (1,), "DFT": (1, 2),
    "STFT": (1, 2, 3), "QuantizeLinear": (1, 2), "DequantizeLinear": (0, 1, 2),
    "ConvInteger": (1, 3), "QLinearConv": (1, 2, 3, 4, 5, 6, 7, 8), "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "DeformConv": (1, 3), "BitShift": (1,), "Col2Im": (1, 2), "Scatter": (1,),
    "BlackmanWindow": (0,), "HammingWindow": (0,), "HannWindow": (0,), "MelWeightMatrix": (0, 1, 2, 3, 4),
    "Upsample": (1,),
    "LSTM": (1, 2, 3, 4, 7), "GRU": (1, 2, 3, 4), "RNN": (1, 2, 3, 4),
}  # fmt: skip
_REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "SumSquare", "L1", "L2", "LogSum", "LogSumExp"]
CONSTANT_OPERANDS |= {f"Reduce{kind}": (1,) for kind in _REDUCTIONS}


@dataclass(frozen=True)
class Result:
    """Of one case: "pass", "out of scope", "unexpected pass" or "fail"."""

    name: str
    verdict: str
    detail: str
    ops: tuple[str, ...]


@functools.cache
def cases() -> list:
    """All node cases, built in this process."""
    from onnx.backend.test.case import base
    from onnx.backend.test.case.node import collect_testcases

    base.process_snippet = lambda *_: []  # texts for the pages of onnx, for which it parses every source
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sorted(collect_testcases(None), key=lambda case: case.name)


def run_case(case) -> Result:
    """Judges one case against the list of what is out of scope."""
    ops = tuple(sorted({node.op_type for node in case.model.graph.node}))
    reason = reason_of(case)
    if reason is not None and reason.startswith("sequences"):
        return Result(case.name, "out of scope", reason, ops)
    folds = reason is not None and reason.startswith("no lowering")  # in scope if only constants are computed by it
    refused = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem = _difference(case)
    except TcimError as error:
        problem, refused = f"{type(error).__name__}: {error}", True
    if problem is None:
        return Result(case.name, "pass" if reason is None or folds else "unexpected pass", reason or "", ops)
    if reason is None or (folds and not refused):
        return Result(case.name, "fail", problem, ops)
    return Result(case.name, "out of scope", reason, ops)


def baked(model, inputs):
    """The model with the operands that must be constants as initialisers, and what is left to feed."""
    import onnx

    names = {}
    if "window_" in model.graph.name and model.graph.name.endswith("_expanded"):
        names = {info.name: True for info in model.graph.input}  # the length
    elif "causal_conv" in model.graph.name or "center_crop" in model.graph.name:  # functions, written out in other ops
        names = {info.name: True for info in list(model.graph.input)[1:]}
    for node in model.graph.node if not names else ():
        wanted = CONSTANT_OPERANDS.get(node.op_type, ())
        for index, name in enumerate(node.input):
            names[name] = names.get(name, True) and index in wanted
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry in copy.opset_import:  # the cases have the version in which the op last changed, or the newest
        if entry.domain in ("", "ai.onnx"):
            entry.version = min(max(entry.version, OPSETS[0]), OPSETS[-1])
    feeds = {}
    for info, array in zip(list(copy.graph.input), inputs, strict=False):
        if names.get(info.name, False):
            tensor = onnx.numpy_helper.from_array(np.asarray(array), info.name)
            copy.graph.initializer.append(tensor)
            copy.graph.input.remove(info)
        else:
            feeds[info.name] = np.asarray(array)
    return copy, feeds


def _difference(case) -> str | None:
    """What is wrong with the results of a case, or None."""
    for inputs, expected in case.data_sets:
        model, feeds = baked(case.model, inputs)
        shapes = {name: array.shape for name, array in feeds.items()}
        module = Module.load(onnx_bytes(model, "float32", shapes=shapes))
        for name, array in feeds.items():
            kind = np.int32 if array.dtype.kind in "iu" else np.float32
            module.set_input(name, np.ascontiguousarray(array.astype(kind).reshape(array.shape or (1,))))
        module.run(sync=True)
        for info, wanted in zip(case.model.graph.output, expected, strict=True):
            wanted = np.asarray(wanted)
            got = module.get_output(info.name).numpy().reshape(wanted.shape)
            if wanted.dtype.kind in "iub":
                if not np.array_equal(got.astype(np.float64), wanted.astype(np.float64)):
                    return f"'{info.name}' differs: {got.reshape(-1)[:4]} for {wanted.reshape(-1)[:4]}"
                continue
            want = wanted.astype(np.float32)
            rtol = max(case.rtol, 2**-7) if wanted.dtype.name == "bfloat16" else case.rtol
            if not np.allclose(got, want, rtol=rtol, atol=case.atol, equal_nan=True):
                worst = np.nanmax(np.abs(got - want))
                return f"'{info.name}' differs by {worst:.3g} of {np.nanmax(np.abs(want)):.3g}"
    return None


def results(only: str = "") -> Iterator[Result]:
    """The results of all cases whose name contains `only`."""
    return (run_case(case) for case in cases() if only in case.name)


def main() -> int:
    """Prints a summary; status 1 if a case fails or passes unexpectedly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains TEXT")
    parser.add_argument("--verbose", action="store_true", help="also list what passes and what is out of scope")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for result in results(args.only):
        counts[result.verdict] += 1
        if result.verdict == "out of scope":
            reasons[result.detail] += 1
        if args.verbose or result.verdict not in ("pass", "out of scope"):
            print(f"{result.verdict:16} {result.name}: {result.detail}")
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    for reason, count in reasons.most_common():
        print(f"  {count:5}  {reason}")
    assert OUT_OF_SCOPE
    return 1 if counts["fail"] or counts["unexpected pass"] else 0


if __name__ == "__main__":
    sys.exit(main())
