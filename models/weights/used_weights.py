"""Which weights of a package a file needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from tcim_lite.hmm import Graph

_Weight = TypeVar("_Weight")


def used_weights(graphs: Sequence[Graph], weights: Sequence[_Weight]) -> tuple[list[Graph], list[_Weight]]:
    """Returns the graphs with a weight table of only what they use, in the order it has in `weights`."""
    used = sorted({value.weight for graph in graphs for value in graph.values if value.weight is not None})
    position = {old: new for new, old in enumerate(used)}
    renumbered = [
        replace(
            graph,
            values=[
                value if value.weight is None else replace(value, weight=position[value.weight])
                for value in graph.values
            ],
        )
        for graph in graphs
    ]
    return renumbered, [weights[index] for index in used]
