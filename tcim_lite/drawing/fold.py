"""Finds the repeated blocks of a graph, such as the layers of a language model, by structure alone.

Two stretches of ops are the same block if their ops, one by one, have the same kinds, attributes and tensors, and if
one value can be renamed into the other throughout: what feeds what is then the same too. What a block reads of other
blocks in the row comes from the same place in a block equally far before it. No name is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..hmm import Graph, Op

_LEAST_SAVED = 6  # ops that a fold must remove
_SHORT, _OFTEN = 3, 5  # blocks of fewer ops than the first are folded only from the second number of repeats on
_LONGEST = 4096  # ops of a block
_MOST_CANDIDATES = 20_000
_EFFORT = 40  # ops compared one by one, times the ops of the graph


@dataclass(frozen=True, slots=True)
class Repeat:
    """A block that occurs `count` times in a row, each time `period` ops long, from op `start` on."""

    start: int
    period: int
    count: int
    body: tuple[Item, ...]  # of the first occurrence

    @property
    def stop(self) -> int:
        """The op behind the last occurrence."""
        return self.start + self.period * self.count


Item = int | Repeat  # an op, by its index, or a folded block


def flat(graph: Graph) -> tuple[Item, ...]:
    """All ops, nothing folded."""
    return tuple(range(len(graph.ops)))


def fold(graph: Graph) -> tuple[Item, ...]:
    """Returns the ops in order, with blocks in place of what repeats; blocks may hold blocks."""
    return _Folding(graph).result()


@dataclass(slots=True)
class _Folding:
    graph: Graph
    crossing: NDArray[np.int64] = field(init=False)  # per op: values made before it and read at it or later
    free: NDArray[np.int32] = field(init=False)  # per op: the block body it belongs to, -1 if it is folded away
    chosen: dict[int, list[tuple[int, int]]] = field(init=False)  # by start: (period, count), outermost first
    made: list[tuple[int, int]] = field(init=False)  # per value: the op that makes it, or -1, and which of its results
    effort: int = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.graph.ops)
        self.crossing = _crossing(self.graph)
        self.free = np.zeros(count, np.int32)
        self.chosen = {}
        self.effort = _EFFORT * count
        self.made = [(-1, 0)] * len(self.graph.values)
        for index, op in enumerate(self.graph.ops):
            for place, id_ in enumerate(op.outputs):
                self.made[id_] = (index, place)

    def result(self) -> tuple[Item, ...]:
        tokens = _tokens(self.graph)
        body = 0
        for start, stop, period in _candidates(tokens):
            if self.effort < 0:
                break
            for begin, end in self._free_stretches(start, stop, 2 * period):
                for first, count in self._best(begin, end, period):
                    body += 1
                    self.free[first : first + period] = body
                    self.free[first + period : first + period * count] = -1
                    self.chosen.setdefault(first, []).append((period, count))
        return self._items(0, len(self.graph.ops), {})

    def _free_stretches(self, start: int, stop: int, least: int) -> list[tuple[int, int]]:
        """The parts of [start, stop) that lie in one body, of at least `least` ops."""
        bodies = self.free[start:stop]
        edges = [0, *(np.flatnonzero(bodies[1:] != bodies[:-1]) + 1).tolist(), stop - start]
        pairs = itertools.pairwise(edges)
        return [(start + a, start + b) for a, b in pairs if b - a >= least and bodies[a] >= 0]

    def _best(self, begin: int, end: int, period: int) -> list[tuple[int, int]]:
        """Where blocks begin and how many there are: cut where the fewest values cross, then as many as there can be.

        A block inside [begin, end) can begin at any of `period` ops; a layer begins where one value is handed on.
        """
        self.effort -= period
        starts = []
        for start in range(begin, min(begin + period, end - 2 * period + 1)):
            count = (end - start) // period
            cuts = self.crossing[start + period : start + period * count : period]
            starts.append((int(cuts.max()), -count, start))
        for _, negative, start in sorted(starts)[:3]:
            found = self._same(start, period, -negative)
            if found:
                return found
        return []

    def _same(self, start: int, period: int, count: int) -> list[tuple[int, int]]:
        """The rows of occurrences that are one block and worth a fold: where each begins, and how many there are."""
        rows, begin = [], 0
        for index in range(1, count + 1):
            if index == count or not self._isomorphic(start + begin * period, start + index * period, period):
                found = index - begin
                if (found - 1) * period >= _LEAST_SAVED and (period >= _SHORT or found >= _OFTEN):
                    rows.append((start + begin * period, found))
                begin = index
        return rows

    def _isomorphic(self, first: int, b: int, period: int) -> bool:
        """Whether the block at op `b` is the one before it, in a row that begins at op `first`."""
        self.effort -= period
        if self.effort < 0:
            return False
        a = b - period
        there: dict[int, int] = {}
        back: dict[int, int] = {}
        for one, other in zip(self.graph.ops[a : a + period], self.graph.ops[b : b + period], strict=True):
            for x, y in zip((*one.inputs, *one.outputs), (*other.inputs, *other.outputs), strict=True):
                if there.setdefault(x, y) != y or back.setdefault(y, x) != x:
                    return False
        return all(x == y or self._follows(x, y, first, a, period) for x, y in there.items())

    def _follows(self, x: int, y: int, first: int, a: int, period: int) -> bool:
        """Whether a block may read y where the one before it, at op `a`, reads x."""
        (one, place), (other, other_place) = self.made[x], self.made[y]
        if one >= a or self.graph.values[x].kind in ("state", "weight"):
            return True  # made inside, or its own
        if one >= first:
            return (one + period, place) == (other, other_place)
        return other - period < first

    def _items(self, begin: int, end: int, depths: dict[int, int]) -> tuple[Item, ...]:
        """[begin, end) as items; `depths` says how many blocks that begin at an op are open already."""
        items: list[Item] = []
        at = begin
        while at < end:
            depth = depths.get(at, 0)
            here = self.chosen.get(at, [])
            if depth < len(here):
                period, count = here[depth]
                body = self._items(at, at + period, depths | {at: depth + 1})
                items.append(Repeat(at, period, count, body))
                at += period * count
            else:
                items.append(at)
                at += 1
        return tuple(items)


def _tokens(graph: Graph) -> NDArray[np.int64]:
    """A number per op, equal for ops that differ at most in which values they are connected to."""
    numbers: dict[tuple[object, ...], int] = {}
    return np.array([numbers.setdefault(_kind(graph, op), len(numbers)) for op in graph.ops], np.int64)


def _kind(graph: Graph, op: Op) -> tuple[object, ...]:
    def described(ids: Sequence[int]) -> tuple[object, ...]:
        values = [graph.values[id_] for id_ in ids]
        held = ("state", "weight")
        return tuple((v.kind if v.kind in held else "", v.dtype, v.format, tuple(v.shape)) for v in values)

    attributes = tuple(sorted((key, repr(value)) for key, value in op.attributes.items()))
    return op.kind, attributes, described(op.inputs), described(op.outputs)


def _crossing(graph: Graph) -> NDArray[np.int64]:
    made = {id_: index for index, op in enumerate(graph.ops) for id_ in op.outputs}
    steps = np.zeros(len(graph.ops) + 1, np.int64)
    last = {id_: index for index, op in enumerate(graph.ops) for id_ in op.inputs}
    for id_, index in last.items():
        if id_ in made:
            steps[made[id_] + 1] += 1
            steps[index + 1] -= 1
    return np.cumsum(steps[:-1])


def _candidates(tokens: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """[start, stop) and the period of every row of equal stretches, best first."""
    found: list[tuple[int, int, int, int]] = []
    count = len(tokens)
    for period in range(1, min(count // 2, _LONGEST) + 1):
        equal = np.concatenate(([False], tokens[:-period] == tokens[period:], [False]))
        edges = np.flatnonzero(equal[1:] != equal[:-1])
        starts, stops = edges[::2], edges[1::2]
        long = (stops - starts) >= max(period, _LEAST_SAVED)
        for start, stop in zip(starts[long].tolist(), stops[long].tolist(), strict=True):
            saved = (stop - start) // period * period
            found.append((-saved, period, start, stop + period))
        if len(found) > 2 * _MOST_CANDIDATES:
            found = sorted(found)[:_MOST_CANDIDATES]
    return [(start, stop, period) for _, period, start, stop in sorted(found)[:_MOST_CANDIDATES]]
