"""From the hidden states of a text to its vector, as sentence-transformers computes it, in float32 or wider."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def pooled(hidden: NDArray[np.floating], modes: Sequence[str]) -> NDArray[np.float32]:
    """The vector of a text.

    Args:
        hidden: [tokens, H], without padding.
        modes: Of `tcim_lite.text_encoders.POOLINGS`, one or more.

    Returns:
        [H * modes].

    Raises:
        KeyError: A mode that does not exist.
    """
    rows = hidden.astype(np.float64)
    weights = np.arange(1, len(rows) + 1, dtype=np.float64)
    ways = {
        "cls": lambda: rows[0],
        "max": lambda: rows.max(axis=0),
        "mean": lambda: rows.mean(axis=0),
        "mean_sqrt_len_tokens": lambda: rows.sum(axis=0) / np.sqrt(len(rows)),
        "weightedmean": lambda: weights @ rows / weights.sum(),
        "lasttoken": lambda: rows[-1],
    }
    return np.concatenate([ways[mode]() for mode in modes]).astype(np.float32)
