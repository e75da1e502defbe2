"""Integers that are divided as floats and rounded down: a division of integers, which is exact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..network import Node
from .view import Fusion, View

_INT32, _INT64 = 6, 7  # in ONNX
_LARGEST = 2**31 - 1


def floor_division(node: Node, view: View) -> Iterator[Fusion]:
    """Cast to floats, Div by a constant whole number, Floor, Cast to integers.

    So torch's exporter writes `//` of integers. float16 ends at 65504, which the samples of a sound pass in 4 s.
    """
    if node.op != "Cast" or node.domain or node.attributes.get("to") not in (_INT32, _INT64):
        return
    floor = view.made_by(node.inputs[0], "Floor")
    quotient = view.made_by(floor.inputs[0], "Div") if floor is not None else None
    cast = view.made_by(quotient.inputs[0], "Cast") if quotient is not None else None
    if floor is None or quotient is None or cast is None or not view.is_integer(cast.inputs[0]):
        return
    by = view.number(quotient.inputs[1])
    if by is None or not 1 <= by <= _LARGEST or by != int(by):
        return
    whole, left, rest = (view.fresh(f"{node.outputs[0]}/{part}") for part in ("divisor", "rest", "multiple"))
    made = [
        replace(node, op="Mod", inputs=[cast.inputs[0], whole], outputs=[left], attributes={}),
        replace(node, op="Sub", inputs=[cast.inputs[0], left], outputs=[rest], attributes={}),
        replace(node, op="Div", inputs=[rest, whole], outputs=node.outputs, attributes={}),
    ]
    shape = view.constants[quotient.inputs[1]].shape
    yield Fusion(made, [floor, quotient, cast], {whole: np.full(shape, int(by), np.int64)})
