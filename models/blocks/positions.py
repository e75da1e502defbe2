"""Positions by a table: it has a row for each, learned or computed, which is added to what the first layer reads."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .part import GraphPart
from .weights import Weight


def position_weights(config: ModelConfig) -> Iterator[Weight]:
    """Yields the table, if there is one in the checkpoint."""
    if config.positions is not None and not config.sinusoids:
        yield Weight(roles.POSITIONS, (config.hidden_size,), sections=(config.positions,))


def sinusoids(positions: int, width: int) -> NDArray[np.float32]:
    """Returns a computed table, [positions, width]: sines, then cosines, of angles that grow with the position.

    Angles are those of tensor2tensor, from 1 to 1/10000 of the position; the last column of an odd `width` is 0.
    """
    half = width // 2
    step = np.float32(math.log(10000) / (half - 1))
    frequencies = np.exp(np.arange(half, dtype=np.float32) * -step)
    angles = np.arange(positions, dtype=np.float32)[:, None] * frequencies
    return np.concatenate((np.sin(angles), np.cos(angles), np.zeros((positions, width % 2), np.float32)), axis=1)


def lower_positions(part: GraphPart, x: Ref) -> Ref:
    """[B, T, H] -> the same, and to each row that of its position is added."""
    found = [_rows(part, slot, x.shape[1]) for slot in range(len(part.slots))]
    together = found[0] if len(found) == 1 else part.builder.concat("positions.slots", found, 0)
    return part.builder.add("positions.sum", x, part.builder.reshape("positions.shaped", together, x.shape))


def _rows(part: GraphPart, number: int, tokens: int) -> Ref:
    """Those of the tokens of a slot, [T, H]; of one beyond the table, which is padding, the last."""
    builder, slot, end = part.builder, part.slots[number], f"_batch_{number}" if number else ""
    rows = builder.weight(roles.POSITION_ROWS)
    if slot.positions is not None or tokens == 1:
        given = slot.valid if slot.positions is None else slot.positions
        flat = builder.reshape(f"positions.flat{end}", given, (tokens,))
        which = builder.gather(f"positions.which{end}", rows, flat, 0)
    else:
        # Rows lie in the order of positions, so these are of the next position and of those behind it.
        behind = builder.integers("Add", f"positions.all{end}", slot.valid, rows)
        which = builder.part(f"positions.which{end}", behind, 0, 0, tokens)
    return builder.gather(f"positions.found{end}", builder.weight(part.weight(roles.POSITIONS)), which, 0)
