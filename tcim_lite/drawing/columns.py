"""Where boxes and bends stand in their ranks, once it is known in which order."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .geometry import Box, Link

_GAP = 28.0  # between boxes of a rank
_LINE_GAP = 16.0  # beside a line that passes a rank
_SWEEPS = 10
_SMALL = 4000  # boxes and bends; graphs of fewer get more sweeps


def columns(
    rows: Sequence[Sequence[int]],
    boxes: Sequence[Box],
    above: Sequence[Sequence[Link]],
    below: Sequence[Sequence[Link]],
) -> list[float]:
    """The left of each box, in the order of its row, as near as can be to where its lines are straight."""
    x = [0.0] * len(boxes)
    for row in rows:
        at = 0.0
        for node in row:
            x[node] = at
            at += boxes[node].width + _distance(boxes[node], boxes[node])
        for node in row:
            x[node] -= at / 2
    sweeps = _SWEEPS + min(6 * _SWEEPS, max(_SWEEPS, _SMALL * _SWEEPS // max(len(boxes), 1)))
    for sweep in range(sweeps):
        down = sweep % 2 == 0
        both = sweep >= _SWEEPS
        for row in rows if down else rows[::-1]:
            _spread(row, boxes, x, [_wish(node, boxes, x, above, below, down, both) for node in row])
    return x


def _wish(
    node: int, boxes: Sequence[Box], x: Sequence[float], above: Sequence[Sequence[Link]],
    below: Sequence[Sequence[Link]], down: bool, both: bool,
) -> tuple[float, float]:  # fmt: skip
    """Where a box wants its left to be, and how much: bends most, so that long lines are straight."""
    total = weight = 0.0
    for links, upper in ((above[node], True), (below[node], False)):
        if upper != down and not both:
            continue
        for link in links:
            other, mine, theirs = (
                (link.upper, link.lower_x, link.upper_x) if upper else (link.lower, link.upper_x, link.lower_x)
            )
            heavy = 1.0
            if boxes[node].width == 0 and boxes[other].width == 0:
                heavy = 60.0
            elif boxes[node].width == 0 or boxes[other].width == 0:
                heavy = 0.5
            total += heavy * (x[other] + theirs - mine)
            weight += heavy
    return (total / weight, weight) if weight else (x[node], 0.05)


def _spread(row: Sequence[int], boxes: Sequence[Box], x: list[float], wishes: Sequence[tuple[float, float]]) -> None:
    """Least squares under the order and the distances of the row: pools of boxes that touch (PAV)."""
    pools: list[tuple[float, float, int]] = []  # position of the first box, weight, boxes
    offsets: list[float] = []
    offset = 0.0
    for index, node in enumerate(row):
        if index:
            before = boxes[row[index - 1]]
            offset += before.width + _distance(before, boxes[node])
        offsets.append(offset)
        wanted, weight = wishes[index]
        pools.append((wanted - offset, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m, i), (b, n, j) = pools[-2], pools[-1]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n, i + j)]
    index = 0
    for position, _, count in pools:
        for _ in range(count):
            x[row[index]] = position + offsets[index]
            index += 1


def recentre(
    rows: Sequence[Sequence[int]], above: Sequence[Sequence[Link]], below: Sequence[Sequence[Link]], x: list[float]
) -> None:
    """Puts boxes that have their rank to themselves below each other, and what is between two of them in the middle.

    Without it, a long row of blocks whose ends are not below their beginnings would drift to one side.
    """
    cuts: dict[int, float] = {}  # by rank: where the lines of its only box end, on the average
    for rank, row in enumerate(rows):
        ends = [link.lower_x for node in row for link in above[node]]
        ends += [link.upper_x for node in row for link in below[node]]
        if len(row) == 1 and ends:
            cuts[rank] = x[row[0]] + sum(ends) / len(ends)
    before: list[float | None] = [None] * len(rows)
    after = before.copy()
    for known, ranks in ((before, range(len(rows))), (after, range(len(rows) - 1, -1, -1))):
        last = None
        for rank in ranks:
            last = known[rank] = cuts.get(rank, last)
    for row, one, other in zip(rows, before, after, strict=True):
        near = [place for place in (one, other) if place is not None]
        for node in row if near else ():
            x[node] -= sum(near) / len(near)


def _distance(one: Box, other: Box) -> float:
    return _GAP if one.width and other.width else _LINE_GAP


def straighten(
    rows: Sequence[Sequence[int]], boxes: Sequence[Box], below: Sequence[Sequence[Link]], real: int, x: list[float]
) -> None:
    """Puts the bends of a line below each other, as far as their neighbours leave room for that."""
    room: dict[int, tuple[float, float]] = {}
    for row in rows:
        for index, node in enumerate(row):
            if node >= real:
                left = row[index - 1] if index else None
                right = row[index + 1] if index + 1 < len(row) else None
                low = x[left] + boxes[left].width + _LINE_GAP if left is not None else -math.inf
                room[node] = (low, x[right] - _LINE_GAP if right is not None else math.inf)
    for node in range(real, len(boxes)):
        if node not in room:
            continue
        run, (low, high) = [node], room.pop(node)
        at = next((link.lower for link in below[node] if link.lower >= real), None)
        while at is not None and at in room and max(low, room[at][0]) <= min(high, room[at][1]):
            low, high = max(low, room[at][0]), min(high, room[at][1])
            run.append(at)
            del room[at]
            at = next((link.lower for link in below[at] if link.lower >= real), None)
        middle = sorted(x[bend] for bend in run)[len(run) // 2]
        for bend in run:
            x[bend] = min(max(middle, low), high)
