"""SiLU, HardSwish and GELU, written out as products.

All are x times a gate of x times a constant, the factors in any order and the constant in any place. Each value that
the product multiplies is tried as x; with x known, there is nothing left to guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..network import OWN, Node
from .linear import is_linear, scaled_linear
from .view import Fusion, View, near

_MOST_FACTORS = 8  # of a product that is looked into


@dataclass(slots=True)
class _Product:
    """A value as a constant times others.

    Attributes:
        factor: The constant.
        terms: Names of the others, one for each time it is a factor.
        nodes: What multiplies them.
        unit: The largest relative error of the constants in `factor`.
    """

    factor: float = 1.0
    terms: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    unit: float = 2.0**-24

    def is_(self, factor: float, *terms: str) -> bool:
        """Whether it is this product."""
        return sorted(self.terms) == sorted(terms) and near(self.factor, factor, self.unit)


def silu(node: Node, view: View) -> Iterator[Fusion]:
    """x * Sigmoid(x), and x / (1 + exp(-x))."""
    for x, product in _products(node, view):
        gate = _other(product, x)
        sigmoid = view.made_by(gate, "Sigmoid")
        if sigmoid is not None and sigmoid.inputs == [x] and product.is_(1.0, x, gate):
            yield _unary(node, "Silu", OWN, x, [*product.nodes, sigmoid])
    if node.op == "Div" and not node.domain and len(node.inputs) == 2:
        x, below = node.inputs
        plus = _plus(view, below, 1.0)
        exp = view.made_by(plus[0], "Exp") if plus else None
        minus = view.made_by(exp.inputs[0], "Neg") if exp else None
        if plus and exp and minus and minus.inputs == [x]:
            yield _unary(node, "Silu", OWN, x, [plus[1], exp, minus])


def hard_swish(node: Node, view: View) -> Iterator[Fusion]:
    """x times HardSigmoid(x) of 1/6 and 1/2, or times Clip(x + 3, 0, 6) / 6."""
    for x, product in _products(node, view):
        gate = _other(product, x)
        hard = view.made_by(gate, "HardSigmoid")
        if hard is not None and hard.inputs == [x] and product.is_(1.0, x, gate):
            alpha, beta = hard.attributes.get("alpha", 0.2), hard.attributes.get("beta", 0.5)
            if near(alpha, 1 / 6, 2.0**-24) and near(beta, 0.5, 2.0**-24):
                yield _unary(node, "HardSwish", "", x, [*product.nodes, hard])
        clip = view.made_by(gate, "Clip")
        plus = _plus(view, clip.inputs[0], 3.0) if clip else None
        if clip is not None and plus is not None and plus[0] == x and product.is_(1 / 6, x, gate):
            limits = [view.number(name) for name in clip.inputs[1:]]
            if limits == [0.0, 6.0]:
                yield _unary(node, "HardSwish", "", x, [*product.nodes, clip, plus[1]])


def gelu(node: Node, view: View) -> Iterator[Fusion]:
    """x / 2 * (1 + erf(x / sqrt 2)), and the form with tanh."""
    for x, product in _products(node, view):
        gate = _other(product, x)
        plus = _plus(view, gate, 1.0)
        if plus is None or not product.is_(0.5, x, gate):
            continue
        curve = view.made_by(plus[0], "Erf", "Tanh")
        if curve is None:
            continue
        inner = _erf_inside if curve.op == "Erf" else _tanh_inside
        nodes = inner(view, curve.inputs[0], x)
        if nodes is not None:
            kind = {} if curve.op == "Erf" else {"approximate": "tanh"}
            merged = replace(node, op="Gelu", inputs=[x], attributes=kind)
            yield Fusion([merged], [*_without(product.nodes, node), plus[1], curve, *nodes])


def scaled_silu(node: Node, view: View) -> Iterator[Fusion]:
    """x * Sigmoid(c x) between two products with constant matrices: Silu, with c in the first and 1 / c in the second.

    There is no op for it. CLIP's activation has c = 1.702.
    """
    readers = view.readers(node.outputs[0])
    after = readers[0] if len(readers) == 1 and not view.is_output(node.outputs[0]) else None
    if after is None or not is_linear(after, view) or after.inputs[0] != node.outputs[0]:
        return
    for x, product in _products(node, view):
        gate, before = _other(product, x), view.producer(x)
        sigmoid = view.made_by(gate, "Sigmoid")
        if sigmoid is None or before is None or not is_linear(before, view) or not product.is_(1.0, x, gate):
            continue
        inner = _product(view, sigmoid.inputs[0], x)
        parts = [*_without(product.nodes, node), sigmoid, *inner.nodes]
        inside = {id(part) for part in (node, *parts)}
        alone = not view.is_output(x) and all(id(reader) in inside for reader in view.readers(x))
        if alone and inner.terms == [x] and 0.25 <= inner.factor <= 4:
            first, second = (
                scaled_linear(before, view, inner.factor),
                scaled_linear(after, view, 1 / inner.factor, bias=False),
            )
            merged = replace(node, op="Silu", domain=OWN, inputs=[x], attributes={})
            changed = [(before, first[0]), (after, second[0])]
            yield Fusion([merged], parts, first[1] | second[1], changed)


def _erf_inside(view: View, name: str, x: str) -> list[Node] | None:
    inner = _product(view, name, x)
    return inner.nodes if inner.is_(math.sqrt(0.5), x) else None


def _tanh_inside(view: View, name: str, x: str) -> list[Node] | None:
    """sqrt(2 / pi) * (x + 0.044715 x^3), or * x * (1 + 0.044715 x^2)."""
    outer = _product(view, name, x)
    rest = [term for term in outer.terms if term != x]
    if len(rest) != 1 or not near(outer.factor, math.sqrt(2 / math.pi), outer.unit):
        return None
    total = view.made_by(rest[0], "Add")
    if total is None:
        return None
    for one, other in (total.inputs, total.inputs[::-1]):
        cubic = _product(view, other, x)
        powers = [x] * (3 - outer.terms.count(x))
        first = one == x if len(powers) == 3 else view.is_number(one, 1.0)
        if len(powers) > 1 and first and cubic.is_(0.044715, *powers):
            return [*outer.nodes, total, *cubic.nodes]
    return None


def _products(node: Node, view: View) -> Iterator[tuple[str, _Product]]:
    """The product that a node ends, seen from each of the values that it multiplies."""
    if node.op not in ("Mul", "Div") or node.domain:
        return
    whole = _product(view, node.outputs[0], "")
    names = dict.fromkeys(name for part in whole.nodes for name in part.inputs if name not in view.constants)
    for x in names:
        yield x, _product(view, node.outputs[0], x)


def _product(view: View, name: str, x: str) -> _Product:
    """A value as a product, in which x is not looked into."""
    product = _Product()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        number = view.number(name)
        if number is not None:
            product.factor *= number
            product.unit = max(product.unit, view.unit(name))
            continue
        node = view.made_by(name, "Mul", "Div", "Pow") if name != x and len(product.nodes) < _MOST_FACTORS else None
        if node is None or len(node.inputs) != 2:
            product.terms.append(name)
            continue
        first, second = node.inputs
        below = view.number(second) if node.op != "Mul" else None
        if node.op == "Mul":
            waiting += [second, first]
        elif node.op == "Div" and below:
            product.factor /= below
            product.unit = max(product.unit, view.unit(second))
            waiting.append(first)
        elif node.op == "Pow" and below in (2.0, 3.0):
            waiting += [first] * int(below)
        else:
            product.terms.append(name)
            continue
        product.nodes.append(node)
    return product


def _plus(view: View, name: str, wanted: float) -> tuple[str, Node] | None:
    """What a constant is added to, and the node that does it."""
    node = view.made_by(name, "Add")
    for one, other in (node.inputs, node.inputs[::-1]) if node is not None else ():
        if node is not None and view.is_number(other, wanted):
            return one, node
    return None


def _other(product: _Product, x: str) -> str:
    """The second of two factors, one of which is x; "" if it is no such product."""
    if len(product.terms) != 2 or x not in product.terms:
        return ""
    return product.terms[1 - product.terms.index(x)]


def _without(nodes: list[Node], node: Node) -> list[Node]:
    return [part for part in nodes if part is not node]


def _unary(node: Node, op: str, domain: str, x: str, nodes: list[Node]) -> Fusion:
    merged = replace(node, op=op, domain=domain, inputs=[x], attributes={})
    return Fusion([merged], _without(nodes, node))
