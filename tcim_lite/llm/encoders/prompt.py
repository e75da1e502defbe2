"""Token ids of one text, or of a pair."""

from __future__ import annotations

from collections.abc import Iterable


class EncoderPrompt(list[int]):
    """Token ids, and which of two texts each is of.

    Attributes:
        segments: 0 or 1 for each token; of a single text 0.
    """

    def __init__(self, tokens: Iterable[int], segments: Iterable[int] | None = None):
        super().__init__(tokens)
        self.segments = [0] * len(self) if segments is None else list(segments)
