"""Choosing the next token."""

from __future__ import annotations

import numpy as np


class Sampler:
    """Greedy by default; otherwise temperature, then top-k, then top-p, as Hugging Face orders them.

    Args:
        temperature: 0 is greedy. Above 0, logits are divided by it.
        top_k: Keep the k most likely tokens; 0 keeps all.
        top_p: Keep the smallest set of tokens whose probabilities reach p; 1 keeps all.
        seed: Equal seeds give equal choices; None draws a fresh one.

    Raises:
        ValueError: A value out of its range.
    """

    def __init__(self, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int | None = None):
        if not temperature >= 0:
            raise ValueError(f"temperature={temperature}: expected 0 (greedy) or more")
        if top_k < 0:
            raise ValueError(f"top_k={top_k}: expected 0 (all tokens) or more")
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p={top_p}: expected more than 0 and at most 1")
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self._rng = np.random.default_rng(seed)

    def __call__(self, logits: np.ndarray) -> int:
        """The chosen token id for logits [vocab]; among equal logits greedy takes the lowest id."""
        ids, weights = self._candidates(np.asarray(logits).reshape(-1))
        return int(ids[0]) if ids.size == 1 else int(self._rng.choice(ids, p=weights))

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """How likely each token is to be chosen for logits [vocab]: [vocab] float64, sum 1."""
        logits = np.asarray(logits).reshape(-1)
        ids, weights = self._candidates(logits)
        spread = np.zeros(logits.size)
        spread[ids] = weights
        return spread

    def _candidates(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids that may be chosen, likeliest first, and their probabilities."""
        if self.temperature == 0:
            return np.array([logits.argmax()]), np.ones(1)
        ids = np.arange(logits.size)
        if 0 < self.top_k < logits.size:
            ids = np.argpartition(logits, -self.top_k)[-self.top_k :]
        ids = ids[np.argsort(-logits[ids].astype(np.float64), kind="stable")]
        scaled = logits[ids].astype(np.float64)
        # Subtracted first: divided by a tiny temperature every logit would be infinite.
        with np.errstate(over="ignore"):
            weights = np.exp((scaled - scaled[0]) / self.temperature)
        weights /= weights.sum()
        if self.top_p < 1:
            kept = int(np.searchsorted(np.cumsum(weights), self.top_p)) + 1
            ids, weights = ids[:kept], weights[:kept] / weights[:kept].sum()
        return ids, weights
