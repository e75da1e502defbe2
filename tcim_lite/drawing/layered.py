"""A layered layout of boxes and lines from top to bottom, the usual four steps: ranks, order, columns, curves.

Coordinates are pixels; nothing depends on anything but the arguments, so the same graph is drawn the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from .columns import columns, recentre, straighten
from .geometry import Box, Link, Placed, Wire

_END_GAP = 22.0  # between the ends of lines on top of a box
_RANK_GAP = 30.0  # between ranks, and more where many lines run
_SWEEPS = 10
_FARTHEST = 60  # ranks that a line may pass; a longer one is cut, and both ends get a mark
_MOST_BENDS = 60_000  # points of lines between ranks; when there are as many, lines are cut as well


def place(boxes: Sequence[Box], wires: Sequence[Wire]) -> Placed:
    """Places boxes that are in an order in which wires lead onward."""
    return _Layout(boxes, wires).result()


class _Layout:
    def __init__(self, boxes: Sequence[Box], wires: Sequence[Wire]) -> None:
        self.boxes = list(boxes)  # and, behind them, bends: points where a line passes a rank
        self.real = len(boxes)
        self.wires = wires
        self.rank = _ranks(boxes, wires)
        self.links: list[Link] = []
        self.cut: list[Wire] = []
        self._bend()
        self.above: list[list[Link]] = [[] for _ in self.boxes]
        self.below: list[list[Link]] = [[] for _ in self.boxes]
        for link in self.links:
            self.below[link.upper].append(link)
            self.above[link.lower].append(link)
        self.tall: list[float] = []  # per rank, its highest box
        self.rows: list[list[int]] = [[] for _ in range(max(self.rank, default=0) + 1)]

    def _bend(self) -> None:
        groups: dict[tuple[int, int], list[Wire]] = defaultdict(list)
        for wire in self.wires:
            groups[wire.group].append(wire)
        for group, wires in groups.items():
            top = self.rank[wires[0].source]
            farthest = _FARTHEST if len(self.boxes) - self.real < _MOST_BENDS else 1
            short = [w for w in wires if self.rank[w.target] - top <= farthest]
            self.cut += [w for w in wires if self.rank[w.target] - top > farthest]
            if not short:
                continue
            at, x = short[0].source, short[0].source_x
            for rank in range(top + 1, max(self.rank[w.target] for w in short) + 1):
                for wire in short:
                    if self.rank[wire.target] == rank:
                        middle = self.boxes[wire.target].width / 2
                        free = wire.target_x is None
                        end = middle if wire.target_x is None else wire.target_x
                        self.links.append(Link(at, wire.target, x, end, group, free))
                if any(self.rank[w.target] > rank for w in short):
                    self.boxes.append(Box(0.0, 0.0))
                    self.rank.append(rank)
                    self.links.append(Link(at, len(self.boxes) - 1, x, 0.0, group))
                    at, x = len(self.boxes) - 1, 0.0

    def result(self) -> Placed:
        self._order()
        self._spread_ends()
        x = columns(self.rows, self.boxes, self.above, self.below)
        recentre(self.rows, self.above, self.below, x)
        straighten(self.rows, self.boxes, self.below, self.real, x)
        left = min((x[i] for i in range(self.real)), default=0.0)
        left = min(left, *(x[i] for i in range(self.real, len(x)))) if len(x) > self.real else left
        x = [value - left for value in x]
        y, height = self._heights(x)
        width = max((x[i] + box.width for i, box in enumerate(self.boxes)), default=0.0)
        placed = Placed(x[: self.real], y[: self.real], width, height)
        paths: dict[tuple[int, int], list[str]] = defaultdict(list)
        for link in self.links:
            paths[link.group].append(self._course(link, x, y))
            if link.lower < self.real:
                placed.tips[link.group].append((x[link.lower] + link.lower_x, y[link.lower]))
        placed.paths = {group: "".join(parts) for group, parts in paths.items()}
        for wire in self.cut:
            begin = (x[wire.source] + wire.source_x, y[wire.source] + self.boxes[wire.source].height)
            end_x = self.boxes[wire.target].width / 2 if wire.target_x is None else wire.target_x
            placed.cuts.append((wire, begin, (x[wire.target] + end_x, y[wire.target])))
        return placed

    def _order(self) -> None:
        """Repeats sorting each rank by the mean place of its neighbours, and keeps the order with fewest crossings."""
        place = [0.0] * len(self.boxes)
        for row in _depth_first(self.boxes, self.rank, self.below, len(self.rows)):
            for index, node in enumerate(row):
                place[node] = float(index)
                self.rows[self.rank[node]].append(node)
        best, fewest = [list(row) for row in self.rows], self._crossings(place)
        for sweep in range(_SWEEPS if fewest else 0):
            down = sweep % 2 == 0
            for row in self.rows if down else self.rows[::-1]:
                around = self.above if down else self.below
                wanted = {node: self._mean(node, around[node], place, down) for node in row}
                row.sort(key=lambda node: wanted[node])
                for index, node in enumerate(row):
                    place[node] = float(index)
            now = self._crossings(place)
            if now < fewest:
                best, fewest = [list(row) for row in self.rows], now
            if not fewest:
                break
        self.rows = best

    def _spread_ends(self) -> None:
        place = {node: float(index) for row in self.rows for index, node in enumerate(row)}
        for node, box in enumerate(self.boxes[: self.real]):
            free = [link for link in self.above[node] if link.free]
            free.sort(key=lambda link: self._end(link, place, True))
            step = min(_END_GAP, box.width / (len(free) + 1))
            for index, link in enumerate(free):
                link.lower_x = box.width / 2 + step * (index - (len(free) - 1) / 2)

    def _mean(self, node: int, links: Sequence[Link], place: Sequence[float], down: bool) -> float:
        if not links:
            return place[node]
        ends = [self._end(link, place, down) for link in links]
        return sum(ends) / len(ends)

    def _end(self, link: Link, place: Mapping[int, float] | Sequence[float], upper: bool) -> float:
        """A place within a row, finer than a box: where on its box the line ends."""
        node, x = (link.upper, link.upper_x) if upper else (link.lower, link.lower_x)
        width = self.boxes[node].width
        return place[node] + (0.8 * (x / width - 0.5) if width else 0.0)

    def _crossings(self, place: Sequence[float]) -> int:
        by_rank: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for link in self.links:
            pair = (self._end(link, place, True), self._end(link, place, False))
            by_rank[self.rank[link.upper]].append(pair)
        return sum(_inversions([low for _, low in sorted(pairs)]) for pairs in by_rank.values())

    def _heights(self, x: Sequence[float]) -> tuple[list[float], float]:
        y = [0.0] * len(self.boxes)
        top = 0.0
        for row in self.rows:
            for node in row:
                y[node] = top
            tall = max((self.boxes[node].height for node in row), default=0.0)
            self.tall.append(tall)
            shifts = [
                abs(x[link.upper] + link.upper_x - x[link.lower] - link.lower_x)
                for node in row for link in self.below[node]
            ]  # fmt: skip
            slanted = sum(shift > 8 for shift in shifts)
            top += tall + _RANK_GAP + min(6.0 * slanted, 60.0) + min(max(shifts, default=0.0) / 40, 24.0)
        bottom = max((y[i] + self.boxes[i].height for i in range(self.real)), default=0.0)
        return y, bottom

    def _course(self, link: Link, x: Sequence[float], y: Sequence[float]) -> str:
        x0, x1 = x[link.upper] + link.upper_x, x[link.lower] + link.lower_x
        y0, y1 = y[link.upper] + self.boxes[link.upper].height, y[link.lower]
        base = y[link.upper] + self.tall[self.rank[link.upper]]  # from there on, no box is in the way
        straight = f"V{base:.1f}" if base > y0 else ""
        if abs(x0 - x1) < 0.05:
            return f"M{x0:.1f} {y0:.1f}V{y1:.1f}"
        middle = (base + y1) / 2
        return f"M{x0:.1f} {y0:.1f}{straight}C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"


def _ranks(boxes: Sequence[Box], wires: Sequence[Wire]) -> list[int]:
    """Each box below all that it reads from, and as low as what reads it allows."""
    below: list[list[int]] = [[] for _ in boxes]
    for wire in wires:
        below[wire.source].append(wire.target)
    rank = [0] * len(boxes)
    for node in range(len(boxes)):
        for target in below[node]:
            rank[target] = max(rank[target], rank[node] + 1)
    lowest = max(rank, default=0)
    for node in reversed(range(len(boxes))):
        if boxes[node].pin > 0:
            rank[node] = lowest
        elif below[node]:
            rank[node] = min(rank[target] for target in below[node]) - 1
        if boxes[node].pin < 0:
            rank[node] = 0
    return rank


def _depth_first(
    boxes: Sequence[Box], rank: Sequence[int], below: Sequence[Sequence[Link]], rows: int
) -> list[list[int]]:
    """A first order: boxes as a walk along the lines meets them."""
    seen = [False] * len(boxes)
    found: list[list[int]] = [[] for _ in range(rows)]
    for start in sorted(range(len(boxes)), key=lambda node: (rank[node], node)):
        stack = [start]
        while stack:
            node = stack.pop()
            if seen[node]:
                continue
            seen[node] = True
            found[rank[node]].append(node)
            stack += [link.lower for link in reversed(below[node]) if not seen[link.lower]]
    return found


def _inversions(numbers: Sequence[float]) -> int:
    """How many pairs are in the wrong order, by a Fenwick tree."""
    places = {number: index + 1 for index, number in enumerate(sorted(set(numbers)))}
    tree = [0] * (len(places) + 1)
    total = 0
    for seen, number in enumerate(numbers):
        at = places[number]
        not_greater = 0
        while at:
            not_greater += tree[at]
            at -= at & -at
        total += seen - not_greater
        at = places[number]
        while at < len(tree):
            tree[at] += 1
            at += at & -at
    return total
