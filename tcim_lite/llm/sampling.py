"""Choosing the next token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Sampler:
    """Greedy by default; otherwise temperature, top-k, top-p, then min-p, as Hugging Face orders them.

    Args:
        temperature: 0 is greedy. Above 0, logits are divided by it.
        top_k: Keep the k most likely tokens; 0 keeps all.
        top_p: Keep the smallest set of tokens whose probabilities reach p; 1 keeps all.
        min_p: Keep the tokens at least this times as likely as the likeliest; 0 keeps all.
        repetition_penalty: Before all else, logits of tokens that are in the text already are divided by it where they
            are positive and multiplied where they are negative; 1 changes nothing.
        seed: Equal seeds give equal choices; None draws a fresh one.

    Raises:
        ValueError: A value out of its range.
    """

    def __init__(
        self,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        *,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
    ):
        if not temperature >= 0:
            raise ValueError(f"temperature={temperature}: expected 0 (greedy) or more")
        if top_k < 0:
            raise ValueError(f"top_k={top_k}: expected 0 (all tokens) or more")
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p={top_p}: expected more than 0 and at most 1")
        if not 0 <= min_p <= 1:
            raise ValueError(f"min_p={min_p}: expected 0 to 1")
        if not 0 < repetition_penalty < float("inf"):
            raise ValueError(f"repetition_penalty={repetition_penalty}: expected more than 0; 1 changes nothing")
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self.min_p, self.repetition_penalty = min_p, repetition_penalty
        self._rng = np.random.default_rng(seed)

    def __call__(self, logits: np.ndarray, text: Sequence[int] = ()) -> int:
        """The chosen token id for logits [vocab]; among equal logits greedy takes the lowest id.

        `text` is the tokens so far, prompt and answer, for the repetition penalty.
        """
        ids, weights = self._candidates(self._penalised(np.asarray(logits).reshape(-1), text))
        return int(ids[0]) if ids.size == 1 else int(self._rng.choice(ids, p=weights))

    def probabilities(self, logits: np.ndarray, text: Sequence[int] = ()) -> np.ndarray:
        """How likely each token is to be chosen for logits [vocab] after `text`: [vocab] float64, sum 1."""
        logits = self._penalised(np.asarray(logits).reshape(-1), text)
        ids, weights = self._candidates(logits)
        spread = np.zeros(logits.size)
        spread[ids] = weights
        return spread

    def _penalised(self, logits: np.ndarray, text: Sequence[int]) -> np.ndarray:
        if self.repetition_penalty == 1 or not len(text):
            return logits
        changed, seen = logits.astype(np.float32), np.unique(np.asarray(text))
        values = changed[seen]
        changed[seen] = np.where(values < 0, values * self.repetition_penalty, values / self.repetition_penalty)
        return changed

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
        if self.min_p > 0:
            kept = int(np.count_nonzero(weights >= self.min_p * weights[0]))  # likeliest first
            ids, weights = ids[:kept], weights[:kept] / weights[:kept].sum()
        return ids, weights
