"""Einsum, as products of matrices: two operands at a time, from left to right."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..emit import Tensor
from ..network import MAX_FOLDED
from ..table import Call, Operand, lowers
from .elementwise import binary
from .matmul import linear, product
from .reduce import reduced
from .shape import take

_ELLIPSIS = "0123456789"  # labels of the axes that "..." stands for, the last one "9"


@dataclass(frozen=True)
class _Term:
    """An operand and a label for each of its axes."""

    value: Operand
    labels: str

    @property
    def extents(self) -> Mapping[str, int]:
        return dict(zip(self.labels, self.value.shape, strict=True))


@lowers("Einsum")
def einsum(call: Call) -> Operand:
    """https://onnx.ai/onnx/operators/onnx__Einsum.html; axes of 1 fit any other, as in numpy."""
    terms, result = _parse(call)
    whole = {label: max(term.extents.get(label, 1) for term in terms) for term in terms for label in term.labels}
    for term in terms:
        for label, extent in term.extents.items():
            if extent not in (1, whole[label]):
                raise call.node.unsupported(f"{extent} and {whole[label]} elements on axes that are one")
    if not any(isinstance(term.value, Tensor) for term in terms):
        if math.prod(whole.values()) > MAX_FOLDED:
            raise call.node.unsupported("all its operands are constants, and it is too large to be evaluated")
        equation = str(call.attr("equation")).replace(" ", "")
        return np.asarray(np.einsum(equation, *(np.asarray(term.value) for term in terms)))
    terms = [_diagonal(call, term) for term in terms]
    first = _summed(call, terms[0], {*result, *(label for term in terms[1:] for label in term.labels)})
    for i, second in enumerate(terms[1:], 2):
        later = {label for term in terms[i:] for label in term.labels}
        first = _pair(call, first, second, later | set(result))
    first = _summed(call, first, set(result))
    y = call.transpose(call.as_floats(first.value), [first.labels.index(label) for label in result])
    shape = tuple(whole[label] for label in result)
    return y if y.shape == shape else call.op("Expand", [y], shape)


def _parse(call: Call) -> tuple[list[_Term], str]:
    """The operands with their labels, and the labels of the result."""
    equation = call.attr("equation")
    if not isinstance(equation, str) or equation.count("->") > 1:
        raise call.node.unsupported("attribute 'equation' is no equation")
    left, arrow, result = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    operands = [call.operand(i) for i in range(call.count)]
    if len(texts) != len(operands):
        raise call.node.unsupported(f"an equation of {len(texts)} operands for {len(operands)}")
    most = 0
    terms = []
    for text, operand in zip(texts, operands, strict=True):
        rank, named = len(operand.shape), len(text.replace("...", "", 1))
        count = rank - named if "..." in text else 0
        labels = text.replace("...", _ELLIPSIS[len(_ELLIPSIS) - count :] if count > 0 else "", 1)
        if not 0 <= count <= len(_ELLIPSIS) or len(labels) != rank or not _are_letters(text):
            raise call.node.unsupported(f"{text!r:.40} for an operand of rank {rank}")
        terms.append(_Term(operand, labels))
        most = max(most, count)
    rest = _ELLIPSIS[len(_ELLIPSIS) - most :] if most else ""
    if not arrow:  # what stands once, in alphabetical order
        counts = Counter(left.replace("...", "").replace(",", ""))
        return terms, rest + "".join(sorted(label for label, count in counts.items() if count == 1))
    known = {label for term in terms for label in term.labels}
    labels = result.replace("...", rest, 1)
    if not _are_letters(result) or len(set(labels)) != len(labels) or not set(labels) <= known:
        raise call.node.unsupported(f"{result!r:.40} as its result")
    return terms, labels


def _are_letters(text: str) -> bool:
    return all(letter.isascii() and letter.isalpha() for letter in text.replace("...", "", 1))


def _diagonal(call: Call, term: _Term) -> _Term:
    """Axes of one label become one."""
    while (twice := next((label for label, n in Counter(term.labels).items() if n > 1), None)) is not None:
        x, labels = call.as_floats(term.value), term.labels
        i, j = labels.index(twice), labels.rindex(twice)
        extent = x.shape[i]
        if x.shape[j] != extent:
            raise call.node.unsupported(f"{extent} and {x.shape[j]} elements on axes that are one")
        order = [axis for axis in range(len(labels)) if axis not in (i, j)]
        x = call.transpose(x, [*order, i, j])
        lead = x.shape[:-2]
        x = call.reshape(x, (*lead, call.places(extent * extent)))
        x = take(call, x, np.arange(extent) * (extent + 1), len(lead))
        term = _Term(x, "".join(labels[axis] for axis in order) + twice)
    return term


def _summed(call: Call, term: _Term, needed: Collection[str]) -> _Term:
    """Without the axes that nobody needs."""
    axes = [axis for axis, label in enumerate(term.labels) if label not in needed]
    if not axes:
        return term
    kept = "".join(label for label in term.labels if label in needed)
    return _Term(reduced(call, "ReduceSum", call.as_floats(term.value), axes, False), kept)


def _without(call: Call, term: _Term, gone: Collection[str]) -> _Term:
    """Without axes of 1."""
    if not gone:
        return term
    labels = "".join(label for label in term.labels if label not in gone)
    shape = tuple(term.extents[label] for label in labels)
    value = term.value
    return _Term(call.reshape(value, shape) if isinstance(value, Tensor) else value.reshape(shape), labels)


def _pair(call: Call, a: _Term, b: _Term, needed: Collection[str]) -> _Term:
    """The product of two, summed over what only they have."""
    uneven = [label for label in a.labels if b.extents.get(label, a.extents[label]) != a.extents[label]]
    a = _without(call, a, [label for label in uneven if a.extents[label] == 1])
    b = _without(call, b, [label for label in uneven if b.extents.get(label) == 1])
    a = _summed(call, a, {*needed, *b.labels})
    b = _summed(call, b, {*needed, *a.labels})
    shared = [label for label in a.labels if label in b.labels]
    batch, inner = [x for x in shared if x in needed], [x for x in shared if x not in needed]
    if not isinstance(a.value, Tensor):  # what is constant is the weight
        a, b = b, a
    rows, columns = ([label for label in term.labels if label not in shared] for term in (a, b))
    if not inner and not (rows and columns):  # nothing to sum: element by element
        wide, narrow = (a, b) if rows or not columns else (b, a)
        labels = [*batch, *(label for label in wide.labels if label not in shared)]
        y = _turned(call, narrow, batch)
        y = call.reshape(y, (*y.shape, *[1] * (len(labels) - len(batch))))
        return _Term(binary(call, "Mul", _turned(call, wide, labels), y), "".join(labels))
    lead = tuple(a.extents[label] for label in batch)
    left = tuple(a.extents[label] for label in rows)
    right = tuple(b.extents[label] for label in columns)
    depth = math.prod(a.extents[label] for label in inner)
    result = "".join([*batch, *rows, *columns])
    first = call.reshape(_turned(call, a, [*batch, *rows, *inner]), (*lead, math.prod(left), depth))
    if not batch and not isinstance(b.value, Tensor):
        weight = np.asarray(b.value).transpose([b.labels.index(label) for label in [*columns, *inner]])
        y = linear(call, first, np.ascontiguousarray(weight.reshape(math.prod(right), depth)), None)
    else:
        second = call.reshape(_turned(call, b, [*batch, *inner, *columns]), (*lead, depth, math.prod(right)))
        y = product(call, first, second)
    return _Term(call.reshape(y, (*lead, *left, *right)), result)


def _turned(call: Call, term: _Term, labels: Sequence[str]) -> Tensor:
    """The operand with its axes in the order of `labels`."""
    return call.transpose(call.as_floats(term.value), [term.labels.index(label) for label in labels])
