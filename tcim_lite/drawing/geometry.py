"""Boxes and lines before and after they have places. All lengths are pixels."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """What to place. `pin` is -1 for the first rank, 1 for the last, 0 for any."""

    width: float
    height: float
    pin: int = 0


@dataclass(frozen=True, slots=True)
class Wire:
    """A line between boxes; the offsets are from the left of each box. Wires of one `group` share their course.

    Without `target_x`, the lines that end at a box are spread over its top, in the order in which they come.
    """

    source: int
    target: int
    group: tuple[int, int]
    source_x: float
    target_x: float | None = None


@dataclass(slots=True)
class Placed:
    """The result.

    Attributes:
        x: Left of each box.
        y: Top of each box.
        width: Of everything.
        height: Of everything.
        paths: By group, the data of an SVG path.
        tips: By group, where its lines end.
        cuts: Of each wire that is too long to draw, its source and target: two points.
    """

    x: list[float]
    y: list[float]
    width: float
    height: float
    paths: dict[tuple[int, int], str] = field(default_factory=dict)
    tips: dict[tuple[int, int], list[Point]] = field(default_factory=lambda: defaultdict(list))
    cuts: list[tuple[Wire, Point, Point]] = field(default_factory=list)


@dataclass(slots=True)
class Link:
    """A stretch of a line from one rank to the next."""

    upper: int
    lower: int
    upper_x: float  # from the left of the box
    lower_x: float
    group: tuple[int, int]
    free: bool = False  # the lower end may be moved along the box
