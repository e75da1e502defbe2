"""Where the states of a sequence are, if a graph returns those after each token of a run.

The verify graph of a package with multi-token prediction does: it judges guesses, and how many were right is known only
behind the run. The next run then reads the states after the last token that was kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .carried import bind_carried, states_after
from .ports import lanes_of, tokens_of


class StepStates:
    """What a graph that returns states after each token reads, beside graphs that go on in buffers of their own.

    Args:
        verify: Takes several tokens of one sequence.
        own: Buffers of each slot's states, in which the other graphs go on.

    Attributes:
        slot: Of the last run of `verify`, while only its outputs hold the states of that slot; else None.
    """

    def __init__(self, verify: Any, own: Sequence[Sequence[Any]]):
        self._verify, self._own = verify, own
        self._after = [states_after(verify, token) for token in range(tokens_of(verify))]
        self.slot: int | None = None
        self._begin = 0  # tokens before the last run
        bind_carried(verify, own[0])

    def reset(self, slot: int) -> None:
        """Says that the next run of a slot begins a sequence; the states in its buffers are to be zeroed."""
        if self.slot == slot:
            self.slot = None
        bind_carried(self._verify, self._own[slot])  # if this is the decode graph, its inputs are what is zeroed

    def bind(self, slot: int, valid: int) -> None:
        """Has the next run of `verify`, which is a slot's, read the states after `valid` tokens.

        What it returned for another slot must have been settled: it is overwritten.

        Raises:
            ValueError: They are gone.
        """
        states = self._kept(valid) if self.slot == slot else self._own[slot]
        for name, state in zip(lanes_of(self._verify)[0].carried, states, strict=True):
            self._verify.set_dev_input(name, state)
        self.slot, self._begin = slot, valid

    def settle(self, valid: int) -> None:
        """Copies the states after `valid` tokens to the buffers of the slot they belong to, where they are not yet.

        Raises:
            ValueError: They are gone.
        """
        if self.slot is not None:
            for state, own in zip(self._kept(valid), self._own[self.slot], strict=True):
                state.copy_to(own)
            self.slot = None

    def _kept(self, valid: int) -> Sequence[Any]:
        kept = valid - self._begin
        if not 0 < kept <= len(self._after):
            raise ValueError(
                f"position {valid}: states only go forward, and the last run began at {self._begin}; begin at 0 again"
            )
        return self._after[kept - 1]
