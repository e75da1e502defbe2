"""Which values of a graph can be taps (csrc/graph/taps.h)."""

from __future__ import annotations

from .graph import Graph, Op, Value

_UPDATES_STATES = ("KVcache",)


def tappable(graph: Graph) -> list[tuple[Op, Value]]:
    """Each value that can be tapped with the op that makes it, in execution order.

    Outputs need no tap. What an op makes of a state is the state itself, which the input shows.
    """
    outputs = set(graph.outputs)
    return [
        (op, graph.values[id_])
        for op in graph.ops
        if op.kind not in _UPDATES_STATES
        for id_ in op.outputs
        if id_ not in outputs
    ]
