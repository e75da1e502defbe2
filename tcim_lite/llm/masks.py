"""The mask inputs of gpt-oss, Laguna and Gemma 4: what tokens see in layers with a sliding window, and in the others.

A mask is added to the scores: 0 where a token sees a cache row, -65504 where it does not. The graph masks nothing
itself, so they are set before every run. A package compiled with --masks has them after the lengths of each slot:
gpt-oss and Gemma 4 both, Laguna that of layers with a window alone, which graphs of Gemma 4 have without it too. That
of Fun-Audio-Chat, `attention_mask`, is of all layers.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from .ports import lanes_of

HIDDEN = -65504.0  # the lowest float16


def attention_mask(
    valid: int,
    current: int,
    tokens: int,
    columns: int,
    window: int | None = None,
    blocks: np.ndarray[Any, Any] | None = None,
) -> np.ndarray[Any, np.dtype[np.float16]]:
    """Makes the mask input of a run.

    Args:
        valid: Tokens in the cache before the run.
        current: Real tokens of the run; those behind are padding and see nothing.
        tokens: Token axis T of the graph.
        columns: Columns S of the mask. Without a window they are the rows of the cache; with one, the rows from
            max(valid - (window - 1), 0) on.
        window: How many tokens a token sees, itself included; None for all up to itself.
        blocks: For each real token the number of a block, whose tokens see those behind them in it too; -1 for none.

    Returns:
        The mask, float16 [1, 1, T, S], with 0 where a token sees a cache row and -65504 where it does not.
    """
    before = valid if window is None else min(valid, window - 1)  # columns before the run's first token
    last = before + np.arange(tokens)[:, None]
    column = np.arange(columns)
    seen = column <= last
    if blocks is not None:
        together = (blocks[:, None] == blocks) & (blocks >= 0)
        seen[:current, before : before + current] |= together[:, : columns - before]
    if window is not None:
        seen &= column > last - window
    seen[current:] = False
    return np.where(seen, np.float16(0), np.float16(HIDDEN)).reshape(1, 1, tokens, columns)


def takes_masks(module: Any) -> bool:
    """Whether the slots of an LLM graph have masks, [1, 1, T, S]."""
    return bool(mask_names(module))


def mask_names(module: Any) -> list[str]:
    """Names of the mask inputs of an LLM graph: of each slot the local and the global one, or the former alone."""
    return [name for lane in lanes_of(module) for name in lane.masks]


class Masks:
    """Sets the masks of a graph; does nothing to one that takes none.

    Args:
        module: An LLM graph with any number of slots.

    Attributes:
        names: As `mask_names`.

    Raises:
        ValueError: The graph has masks, and its `custom_msg` does not say how long the window is.
    """

    def __init__(self, module: Any):
        self._module, self._slots = module, [lane.masks for lane in lanes_of(module) if lane.masks]
        self.names = [name for masks in self._slots for name in masks]
        self._window = _window_of(module) if any(map(_is_local, self.names)) else None

    def set(self, valid: int, current: int, slot: int = 0, blocks: np.ndarray[Any, Any] | None = None) -> None:
        """Sets the masks of a slot for the next run; arguments as in `attention_mask`, blocks for those of windows."""
        if not self._slots:
            return
        for name in self._slots[slot]:
            window = self._window if _is_local(name) else None
            _, _, tokens, columns = self._module.get_input_info(name).shape
            together = blocks if window is not None else None
            self._module.set_input(name, attention_mask(valid, current, tokens, columns, window, together))


def _is_local(name: str) -> bool:
    return not name.startswith(("global", "attention_mask"))


def _window_of(module: Any) -> int:
    try:
        return int(json.loads(module.get_custom_msg())["sliding_window"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            "the graph takes attention masks, but its custom_msg does not say 'sliding_window'; it is not that of a "
            "language model (examples/speech_recognition.py runs those of Whisper), or its package must be compiled "
            "again with --masks"
        ) from None
