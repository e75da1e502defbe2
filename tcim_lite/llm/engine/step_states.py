"""Where the states of a sequence are, if a graph returns those after each token of a run.

The decode graph of a package with multi-token prediction does: it verifies guesses, and how many were right is known
only behind the run. The next run then reads the states after the last token that was kept.
"""

from __future__ import annotations

from typing import Any

from ..carried import bind_carried, carried_of, states_after
from ..ports import lanes_of


class StepStates:
    """The states of one sequence, for a prefill graph and one that returns them after each token.

    Args:
        prefill: Goes on where the last run ended, and writes the states into buffers of `verify`'s inputs.
        verify: Takes several tokens.
    """

    def __init__(self, prefill: Any, verify: Any):
        self._prefill, self._verify = prefill, verify
        tokens = verify.get_input_info(verify.get_input_name(0)).shape[1]
        self._after = [states_after(verify, token) for token in range(tokens)]
        self._own = carried_of(verify)
        self._begin: int | None = None  # tokens before the last run, where that was one of `verify`
        self.reset()

    def reset(self) -> None:
        """Says that the next run begins a sequence; its states are in the inputs of `verify`, to be zeroed."""
        bind_carried(self._verify, self._own)
        bind_carried(self._prefill, self._own)
        self._begin = None

    def bind(self, graph: Any, valid: int) -> None:
        """Has the next run of one of the graphs read the states after `valid` tokens.

        Raises:
            ValueError: They are gone.
        """
        states = self._own
        if self._begin is not None:
            kept = valid - self._begin
            if not 0 < kept <= len(self._after):
                raise ValueError(
                    f"position {valid}: states only go forward, and the last run began at {self._begin}; begin at 0 "
                    "again"
                )
            states = self._after[kept - 1]
            if graph is self._prefill:
                for state, own in zip(states, self._own, strict=True):
                    state.copy_to(own)
        if graph is self._verify:
            for name, state in zip(lanes_of(graph)[0].carried, states, strict=True):
                graph.set_dev_input(name, state)
        self._begin = valid if graph is self._verify else None
