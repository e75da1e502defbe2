"""Rows of cos and sin for tokens that have a position on each of three axes, made once for all layers."""

from __future__ import annotations

from collections.abc import Sequence

from ..graphs.builder import GraphBuilder
from ..graphs.slot import Slot
from ..graphs.values import Ref
from ..weights.roles import ROPE_COLUMNS, ROPE_COS, ROPE_SIN

_AXES = ("time", "height", "width")


def lower_tables(builder: GraphBuilder, slots: Sequence[Slot]) -> tuple[Ref, Ref]:
    """Returns cos and sin, [B, T, head_dim / 2], of the slots' tokens.

    A token's row takes each frequency from the table's row of one of its positions. Where all three are equal that is
    this row, so text is rotated as by one position, to the bit.
    """
    cos, sin = (
        _joined(builder, table, [_rows(builder, table, slot, index) for index, slot in enumerate(slots)])
        for table in (ROPE_COS, ROPE_SIN)
    )
    return cos, sin


def _rows(builder: GraphBuilder, table: str, slot: Slot, index: int) -> Ref:
    """[T, head_dim / 2] of a slot."""
    end = f"_batch_{index}" if index else ""
    if len(slot.axes) > 1:
        found = [
            builder.gather(f"{table}.{axis}{end}", builder.weight(table), positions, 0)
            for axis, positions in zip(_AXES, slot.axes, strict=True)
        ]
    else:
        found = _apart(builder, table, slot.axes[0], end)
    beside = builder.concat(f"{table}.axes{end}", found, 1)
    return builder.gather(f"{table}.row{end}", beside, builder.weight(ROPE_COLUMNS), 1)


def _apart(builder: GraphBuilder, table: str, positions: Ref, end: str) -> list[Ref]:
    """[T, head_dim / 2] along each axis, of positions [3, 1, T]."""
    tokens = positions.shape[2]
    flat = builder.reshape(f"{table}.positions{end}", positions, (len(_AXES) * tokens,))
    rows = builder.gather(f"{table}.all{end}", builder.weight(table), flat, 0)
    return [
        builder.part(f"{table}.{axis}{end}", rows, 0, number * tokens, (number + 1) * tokens)
        for number, axis in enumerate(_AXES)
    ]


def _joined(builder: GraphBuilder, table: str, rows: Sequence[Ref]) -> Ref:
    whole = rows[0] if len(rows) == 1 else builder.concat(f"{table}.slots", rows, 0)
    tokens, half = rows[0].shape
    return builder.reshape(f"{table}.rows", whole, (len(rows), tokens, half))
