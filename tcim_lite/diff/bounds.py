"""How far the result of some ops may be from another runtime's on the same inputs (docs/numerics.md, docs/cuda.md)."""

from __future__ import annotations

from collections.abc import Sequence

from tcim_lite.hmm.weight_format import LAYOUTS

from ..hmm import Value
from .cut import Model

# Relative errors in the Euclidean norm.
# Between two runtimes that round at the same places: one op, and a chain of ops (docs/cuda.md).
_ONE_OP = {"float16": 2.0**-10, "float32": 2.0**-18}
_CHAIN = {"float16": 4e-3, "float32": 1e-5}
_QUANTISED_CHAIN = 4e-2
_MATRICES = {"Linear": 1, "Conv": 1, "MoELinear": 2, "HeadLinear": 1}  # which operand
_VIEWS = ("Slice", "Reshape")


def bound(mode: str, right: Model | None, other: Model, ops: Sequence[int]) -> float:
    """The largest relative error that is no mistake.

    Args:
        mode: "exact": none. "rounding": both round at the same places. "formats": weights may have other formats.
        right: The model that the inputs come from; None for one in float32.
        other: The model whose ops they are.
        ops: Indices of ops of `other` that compute one result.
    """
    if mode == "exact":
        return 0.0
    graph = other.graph
    last = graph.values[graph.ops[ops[-1]].outputs[0]]
    dtype = last.dtype if last.dtype in _CHAIN else "float16"
    computing = [graph.ops[index] for index in ops if graph.ops[index].kind not in _VIEWS]
    limit = _ONE_OP[dtype] if len(computing) <= 1 else _CHAIN[dtype]
    for op in computing:
        operand = _MATRICES.get(op.kind)
        if operand is None:
            continue
        mine = graph.values[op.inputs[operand]]
        layout = LAYOUTS[_format_of(mine)]
        if layout.scale_inputs and len(computing) > 1:
            limit = max(limit, _QUANTISED_CHAIN)
        if mode == "formats":
            theirs = _format_in(right, mine.name)
            if theirs != _format_of(mine):
                limit += layout.error + (LAYOUTS[theirs].error if theirs in LAYOUTS else 0.0)
    return limit


def _format_in(model: Model | None, weight: str) -> str:
    if model is None:
        return "linear_f32"
    return _format_of(model.value(weight)) if weight in model.id_of else "linear_f32"


def _format_of(weight: Value) -> str:
    """Its format; of a Conv that is not packed that of the same numbers."""
    return weight.format if weight.format in LAYOUTS else f"linear_f{32 if weight.dtype == 'float32' else 16}"


def mode_between(right: Model | None, other: Model, right_device: str, device: str) -> str:
    """The mode of `bound` for two sides: exact on CPUs with equal formats, where every result is the same bits."""
    if right is None:
        return "formats"
    for value in right.graph.values:
        if value.kind == "weight" and value.name in other.id_of:
            mine = other.value(value.name)
            if (mine.format, mine.dtype) != (value.format, value.dtype):
                return "formats"
    return "exact" if right_device == device == "cpu" else "rounding"
