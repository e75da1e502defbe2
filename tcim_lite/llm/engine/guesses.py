"""How models guess: greedily, until they are unsure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..sampling import greedy_token, is_sure


def greedy_guesses(logits: np.ndarray, count: int, margin: float, after: Callable[[int, int], np.ndarray]) -> list[int]:
    """At most `count` tokens, each the model's choice after those before it.

    Args:
        logits: [V], before the first.
        count: At least 1.
        margin: They end where the best logit is less than this above the second.
        after: Takes a guess and how many there are; returns the logits [V] after it.
    """
    proposed = [greedy_token(logits)]
    while len(proposed) < count and is_sure(logits, margin):
        logits = after(proposed[-1], len(proposed))
        proposed.append(greedy_token(logits))
    return proposed
