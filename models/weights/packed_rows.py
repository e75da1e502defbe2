"""Some rows of a packed weight as a packed weight of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .packing import BLOCK, block_bytes, pack, unpack


def packed_rows(
    packed: NDArray[np.uint8], fmt: str, shape: tuple[int, int], rows: Sequence[range]
) -> Iterator[NDArray[np.uint8]]:
    """Yields the packed bytes of `rows`, one range after the other: what packing only these rows would give.

    Args:
        packed: The bytes of the whole weight.
        fmt: Its format.
        shape: Its logical shape [N, K].
        rows: Not empty, inside 0..N. Ranges of whole blocks are copied as they are.
    """
    blocks = packed.reshape(-1, block_bytes(fmt, shape[1]))
    # The padding of the whole weight's last block may stay where it is the last block of the result too.
    cuts = [*(part.start for part in rows), *(part.stop for part in rows[:-1])]
    cuts += [rows[-1].stop] if rows[-1].stop < shape[0] else []
    if all(cut % BLOCK == 0 for cut in cuts):
        for part in rows:
            yield blocks[part.start // BLOCK : -(-part.stop // BLOCK)]
        return
    numbers = [_unpacked(blocks, fmt, shape[1], part) for part in rows]
    values = np.concatenate([part for part, _ in numbers])
    factors = [factor for _, factor in numbers if factor is not None]
    yield pack(fmt, values, np.concatenate(factors) if factors else None)


def _unpacked(
    blocks: NDArray[np.uint8], fmt: str, inputs: int, part: range
) -> tuple[NDArray[np.generic], NDArray[np.generic] | None]:
    first = part.start // BLOCK
    covering = blocks[first : -(-part.stop // BLOCK)]
    values, scales = unpack(covering.reshape(-1), fmt, len(covering) * BLOCK, inputs)
    mine = slice(part.start - first * BLOCK, part.stop - first * BLOCK)
    return values[mine], None if scales is None else scales[mine]
