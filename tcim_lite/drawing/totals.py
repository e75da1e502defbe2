"""Bytes of the weights and states of a graph, each counted once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from .fold import Repeat
from .rows import Facts, nbytes, style_of


@dataclass(slots=True)
class Totals:
    """What a graph reads.

    Attributes:
        facts: Of the graph.
        formats: Bytes of weights by style, the largest first.
        states: How many there are, and their bytes.
        weights: Bytes of all weights.
    """

    facts: Facts
    formats: dict[str, int] = field(init=False)
    states: tuple[int, int] = field(init=False)
    weights: int = field(init=False)
    _spans: dict[int, tuple[int, int]] = field(init=False)  # by weight: the first and last op that read it

    def __post_init__(self) -> None:
        facts = self.facts
        spans: dict[int, tuple[int, int]] = {}
        for id_, value in enumerate(facts.graph.values):
            first, last = facts.wiring.first[id_], facts.wiring.last[id_]
            if value.weight is not None and first >= 0:
                a, b = spans.get(value.weight, (first, last))
                spans[value.weight] = (min(a, first), max(b, last))
        found: dict[str, int] = defaultdict(int)
        for weight in spans:
            found[style_of(facts.weights[weight])] += facts.weights[weight].nbytes
        self.formats = dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
        self.weights = sum(found.values())
        held = [value for value in facts.graph.values if value.kind == "state"]
        self.states = (len(held), sum(nbytes(value) for value in held))
        self._spans = spans

    def of_block(self, block: Repeat) -> int:
        """Bytes of the weights that only this block reads, in all of its repeats."""
        inside = [w for w, (a, b) in self._spans.items() if block.start <= a and b < block.stop]
        return sum(self.facts.weights[weight].nbytes for weight in inside)

    def states_of_block(self, block: Repeat) -> int:
        """Bytes of the states that the block updates."""
        graph, first = self.facts.graph, self.facts.wiring.first
        return sum(
            nbytes(value)
            for id_, value in enumerate(graph.values)
            if value.kind == "state" and block.start <= first[id_] < block.stop
        )
