"""Products of codes that a quantiser wrote around floating point numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..network import OWN, Node
from ..table import along
from .view import Fusion, View

# Their results are numbers of the first operand, or 0.
_KEEPS_NUMBERS = (
    "Flatten", "Identity", "MaxPool", "Relu", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
)  # fmt: skip


def dynamic_product(node: Node, view: View) -> Iterator[Fusion]:
    """MatMulInteger or ConvInteger of what DynamicQuantizeLinear made, Cast, times both scales: a product of floats.

    The codes of the weight stay what they are. x is not rounded to codes: how precise it is, the package decides.
    """
    if node.op != "Mul" or node.domain or len(node.inputs) != 2:
        return
    for values, scales in (node.inputs, node.inputs[::-1]):
        cast, both = view.made_by(values, "Cast"), view.made_by(scales, "Mul")
        whole = view.made_by(cast.inputs[0], "MatMulInteger", "ConvInteger") if cast is not None else None
        bias, between = "", list[Node]()
        if cast is not None and whole is None:
            whole, bias, between = _with_whole_bias(cast, scales, view)
        if cast is None or whole is None or both is None or len(whole.inputs) < 3:
            continue
        codes = view.made_by(whole.inputs[0], "DynamicQuantizeLinear")
        if codes is None or whole.inputs[0] != codes.outputs[0] or whole.inputs[2] != codes.outputs[2]:
            continue
        other = view.made_by(whole.inputs[1], "DynamicQuantizeLinear")
        if other is not None and view.is_half and whole.op == "MatMulInteger":  # float32 holds the sums of codes
            scale_of_both = sorted(both.inputs) == sorted((codes.outputs[1], other.outputs[1]))
            if scale_of_both and whole.inputs[1::2] == other.outputs[::2]:
                made = replace(whole, op="MatMul", inputs=[codes.inputs[0], other.inputs[0]], outputs=node.outputs)
                yield Fusion([made], [cast, whole])
            continue
        weight = view.constants.get(whole.inputs[1])
        own = [name for name in both.inputs if name != codes.outputs[1]]
        if weight is None or len(own) != 1 or own[0] not in view.constants:
            continue
        axis = 0 if whole.op == "ConvInteger" else weight.ndim - 1
        factors = along(np.asarray(view.constants[own[0]], np.float32), weight, axis)
        zero = view.constants.get(whole.inputs[3]) if len(whole.inputs) > 3 and whole.inputs[3] else np.zeros(1)
        zeros = None if zero is None else along(np.asarray(zero, np.float32), weight, axis)
        if factors is None or zeros is None:
            continue
        name = view.fresh(f"{node.outputs[0]}/weight")
        inputs, op = [codes.inputs[0], name, *([bias] if bias else [])], whole.op.removesuffix("Integer")
        made = replace(whole, op=op, inputs=inputs, outputs=node.outputs)
        yield Fusion([made], [cast, whole, *between], {name: ((weight - zeros) * factors).astype(np.float32)})


def _with_whole_bias(cast: Node, scales: str, view: View) -> tuple[Node | None, str, list[Node]]:
    """The ConvInteger before an Add of a constant bias in whole steps of both scales, the bias, and what is between.

    As onnxruntime's quantiser of 2020 wrote it.
    """
    add = view.made_by(cast.inputs[0], "Add")
    for product, steps in (add.inputs, add.inputs[::-1]) if add is not None and len(add.inputs) == 2 else ():
        between, name = [add] if add is not None else [], steps
        for ops in (("Reshape",), ("Cast",), ("Floor", "Round"), ("Div",)):
            if (maker := view.made_by(name, *ops)) is not None:
                between.append(maker)
                name = maker.inputs[0]
        whole, bias = view.made_by(product, "ConvInteger"), view.constants.get(name)
        if len(between) == 5 and between[-1].inputs[1] == scales and bias is not None and bias.ndim == 1:
            return whole, name, between
    return None, "", []


def product_of_codes(node: Node, view: View) -> Iterator[Fusion]:
    """MatMulInteger of codes with a constant scale, such as rows of a table, Cast, times the scale of both.

    The codes, less their zero point, are numbers of a product with what the weight's codes stand for, times that scale.
    """
    if node.op != "Mul" or node.domain or len(node.inputs) != 2:
        return
    for values, scales in (node.inputs, node.inputs[::-1]):
        cast, both = view.made_by(values, "Cast"), view.constants.get(scales)
        whole = view.made_by(cast.inputs[0], "MatMulInteger") if cast is not None else None
        weight = view.constants.get(whole.inputs[1]) if whole is not None else None
        if cast is None or whole is None or both is None or weight is None or weight.ndim != 2:
            continue
        zeros = [
            view.constants.get(whole.inputs[i]) if len(whole.inputs) > i and whole.inputs[i] else np.zeros(1)
            for i in (2, 3)
        ]
        factors = along(np.asarray(both, np.float32), weight, 1)
        own = None if zeros[1] is None else along(np.asarray(zeros[1], np.float32), weight, 1)
        if factors is None or own is None or zeros[0] is None or zeros[0].size != 1:
            continue
        names = [view.fresh(f"{node.outputs[0]}/{part}") for part in ("codes", "zero", "numbers", "weight")]
        made = [
            replace(whole, op="Cast", inputs=whole.inputs[:1], outputs=names[:1], attributes={"to": 1}),
            replace(whole, op="Sub", inputs=names[:2], outputs=names[2:3], attributes={}),
            replace(whole, op="MatMul", inputs=names[2:], outputs=node.outputs, attributes={}),
        ]
        constants = {
            names[1]: np.asarray(zeros[0], np.float32).reshape(()),
            names[3]: ((weight - own) * factors).astype(np.float32),
        }
        yield Fusion(made, [cast, whole], constants)


def dequantised_rows(node: Node, view: View) -> Iterator[Fusion]:
    """Rows of a table of codes, and what they stand for: rows of a table of floats."""
    gather = view.made_by(node.inputs[0], "Gather") if node.op == "DequantizeLinear" and not node.domain else None
    if gather is None or gather.inputs[0] not in view.constants or gather.inputs[1] in view.constants:
        return
    table = view.constants[gather.inputs[0]]
    numbers = [view.constants.get(name) for name in node.inputs[1:] if name]
    if any(array is None or array.size != 1 for array in numbers) or table.dtype.kind not in "iu":
        return
    scale, *zero = (np.float32(array.reshape(-1)[0]) for array in numbers if array is not None)
    name = view.fresh(f"{node.outputs[0]}/table")
    floats = (table.astype(np.float32) - (zero[0] if zero else np.float32(0))) * scale
    yield Fusion([replace(gather, inputs=[name, gather.inputs[1]], outputs=node.outputs)], [gather], {name: floats})


def codes_and_back(node: Node, view: View) -> Iterator[Fusion]:
    """Codes and back: FakeQuantize, or nothing where the numbers are of such codes already.

    Of codes of 16 bits: without the zero point, which is added and subtracted. In packages of float16 numbers, which
    are no more precise than such codes, and do not hold them: the numbers themselves, in the range of the codes.
    """
    codes = view.made_by(node.inputs[0], "QuantizeLinear") if node.op == "DequantizeLinear" else None
    if codes is None or node.domain or len(codes.inputs) < 3 or len(node.inputs) < 3:
        return
    own, other = ([view.constants.get(name) for name in each.inputs[1:3]] for each in (codes, node))
    if any(a is None or b is None or a.size != 1 or not np.array_equal(a, b) for a, b in zip(own, other, strict=True)):
        return
    scale, zero = (view.constants[name].reshape(-1)[0] for name in codes.inputs[1:3])
    if zero.dtype.name in ("int8", "uint8") and 0 < scale < np.inf:
        grid = {"alpha": float(np.float32(scale)), "beta": float(np.iinfo(zero.dtype).min - int(zero))}
        x = codes.inputs[0]
        op, domain, attributes = ("Identity", "", {}) if _is_on(grid, x, view) else ("FakeQuantize", OWN, grid)
        yield Fusion([replace(node, op=op, domain=domain, inputs=[x], attributes=attributes)], [codes])
    elif zero.dtype.name in ("int16", "uint16"):
        yield from _wide_codes(node, codes, float(scale), zero, view)


def _is_on(grid: dict[str, float], name: str, view: View) -> bool:
    """Whether a value has numbers of the grid alone, in a type that tells its codes apart."""
    while (maker := view.made_by(name, *_KEEPS_NUMBERS)) is not None:
        name = maker.inputs[0]
    least, most = (2.0**-20, 256.0) if view.is_half else (2.0**-100, 2.0**100)
    same = view.made_by(name, "FakeQuantize", domain=OWN)
    return same is not None and same.attributes == grid and least < grid["alpha"] < most


def _wide_codes(node: Node, codes: Node, scale: float, zero: np.integer[Any], view: View) -> Iterator[Fusion]:
    limits, of_codes = np.iinfo(zero.dtype), not view.is_half
    ends = [np.float32((end - int(zero)) * (1 if of_codes else scale)) for end in (limits.min, limits.max)]
    names = [view.fresh(f"{node.outputs[0]}/{part}") for part in ("least", "most", "divided", "rounded", "limited")]
    constants = dict(zip(names, map(np.asarray, ends), strict=False))
    clip = replace(node, op="Clip", inputs=[codes.inputs[0], *names[:2]], attributes={})
    if not of_codes:
        yield Fusion([clip], [], constants)
    elif int(zero):
        nodes = [
            replace(codes, op="Div", inputs=codes.inputs[:2], outputs=names[2:3], attributes={}),
            replace(codes, op="Round", inputs=names[2:3], outputs=names[3:4], attributes={}),
            replace(clip, inputs=[names[3], *names[:2]], outputs=names[4:]),
            replace(node, op="Mul", inputs=[names[4], node.inputs[1]], attributes={}),
        ]
        yield Fusion(nodes, [codes], constants)
