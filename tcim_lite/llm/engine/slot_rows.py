"""Rows of slots: copied from slot to slot, to the host and back, and set aside while a slot is free.

Attention reads all rows that a slot says it has: three slots that keep 1,800 rows each make a step of a 0.6B model 1.7
times as long. So a slot that is free is parked: its row 0 goes to the host, and it passes 0 until it is used again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ..lora import Adapters
from ..mixed_prompt import MixedPrompt
from .stage import Stage

_PARKED_FROM = 32  # rows; moving one row of every cache there and back costs more than reading a few


class SlotRows:
    """What the slots of some stages hold.

    Args:
        stages: As those of `Slots`.

    Attributes:
        stages: As given.
        tokens: What the caches of each slot hold, one list for each: ids, or keys of a `MixedPrompt`. Its length is the
            number of valid rows. A tail may be deleted to forget it: rows behind the valid length are never read.
        adapters: Those of the graphs, which run with that of the slots at work.
        adapter_of: The adapter with which the rows of each slot are made, None for the base model; `assign` sets it.
        carries: The package has states of linear attention: a slot goes on with all of its tokens, or begins anew.
    """

    def __init__(self, stages: Sequence[Stage]):
        self.stages = list(stages)
        self.tokens: list[list[int]] = [[] for _ in self.stages[0].lanes]
        self.adapters = Adapters([stage.decode for stage in self.stages])
        self.adapter_of: list[str | None] = [None] * len(self)
        self._parked: dict[int, list[list[np.ndarray]]] = {}  # row 0 of each cache, by stage, of slots that pass 0
        self.carries = any(stage.carries for stage in self.stages)
        self._seen: list[int | None] = [None] * len(self)  # tokens that a slot's states are of; None: nobody knows
        self._verified: int | None = None  # slot whose states only a verify run has, if its graph returns them all
        self._mixed: list[MixedPrompt | None] = [None] * len(self)  # of the last prefill of each

    def __len__(self) -> int:
        """The number of slots, B."""
        return len(self.tokens)

    @property
    def feature_width(self) -> int:
        """Numbers of a row that may stand in the place of a token's."""
        first = self.stages[0].decode
        width: int = first.get_input_info(first.get_input_name(0)).shape[-1]
        return width

    @property
    def stack_count(self) -> int:
        """Deepstack inputs of all stages."""
        return sum(len(stage.lanes[0].deepstack) for stage in self.stages)

    def assign(self, slot: int, adapter: str | None) -> None:
        """Says which adapter a slot runs with; it forgets rows of another."""
        if self.adapter_of[slot] != adapter:
            self.tokens[slot] = []
            self.adapter_of[slot] = adapter

    def _activate(self, at_work: Collection[int]) -> None:
        """Before a run of these slots: it has their adapter.

        Raises:
            ValueError: They have several.
        """
        if len(adapters := {self.adapter_of[slot] for slot in at_work}) > 1:
            raise ValueError(f"slots {sorted(at_work)} have {len(adapters)} adapters; a run has one, so decode in turn")
        for adapter in adapters:
            self.adapters.activate(adapter)

    def park(self, slot: int) -> None:
        """Says that decode steps will come before a slot is used again; they need not read its rows then."""
        if len(self) > 1 and len(self.tokens[slot]) >= _PARKED_FROM and slot not in self._parked:
            self._parked[slot] = [stage.read_rows(slot, 1) for stage in self.stages]

    def _unpark(self, slot: int) -> None:
        if self._parked and (rows := self._parked.pop(slot, None)) and self.tokens[slot]:
            for stage, row in zip(self.stages, rows, strict=True):
                stage.write_rows(slot, row, 1)

    def read_rows(self, slot: int) -> list[np.ndarray]:
        """Copies of the valid rows of a slot's caches, each [1, Hkv, rows, D], in an order of its own."""
        self._unpark(slot)
        return [rows for stage in self.stages for rows in stage.read_rows(slot, len(self.tokens[slot]))]

    def write_rows(self, slot: int, tokens: Sequence[int], rows: Sequence[np.ndarray]) -> None:
        """Makes a slot hold `tokens`, whose rows `read_rows` gave: each [1, Hkv, at least len(tokens), D].

        Raises:
            ValueError: The package has states, which are not among the rows.
        """
        self._refuse_states()
        self.tokens[slot] = []
        self._unpark(slot)
        begin = 0
        for stage in self.stages:
            end = begin + len(stage.caches[slot])
            stage.write_rows(slot, rows[begin:end], len(tokens))
            begin = end
        self.tokens[slot] = list(tokens)

    def copy_rows(self, source: int, target: int, count: int) -> None:
        """Makes one slot hold the first `count` tokens of another, without the host; raises as `write_rows`."""
        self._refuse_states()
        self.tokens[target] = []
        self._unpark(source)
        self._unpark(target)
        for stage in self.stages:
            stage.copy_rows(source, target, count)
        self.tokens[target] = self.tokens[source][:count]
        self.adapter_of[target] = self.adapter_of[source]

    def _refuse_states(self) -> None:
        if self.carries:
            raise ValueError(
                "the package has states of linear attention, which go with no rows; give the slot its tokens by prefill"
            )

    def _check_states(self, slot: int) -> None:
        """Raises ValueError where a slot that goes on has had tokens taken back, or a run of it has failed."""
        if self.carries and (held := len(self.tokens[slot])) and self._seen[slot] != held:
            raise ValueError(
                f"slot {slot} holds {held} tokens, but its states are not those after them: states only go "
                "forward; empty the slot's tokens and begin at 0 again"
            )

    def _shift(self, slot: int) -> int:
        """What the position of the slot's next token is more than its number."""
        mixed = self._mixed[slot]
        return mixed.shift if mixed is not None and self.stages[0].lanes[slot].has_axes else 0

    def _settle(self, at_work: Collection[int], verifies: int | None) -> None:
        """Before a run of these slots: their states lie where it reads them.

        Args:
            at_work: Slots that take part.
            verifies: The slot whose verify graph it is, which goes on with its own outputs.
        """
        slot = self._verified
        if slot is None or slot == verifies:
            return
        held, self._seen[slot] = len(self.tokens[slot]), None
        try:
            for stage in self.stages if held else ():  # without tokens it begins anew
                stage.settle(held)
        except ValueError:
            if slot in at_work:
                raise
            self.tokens[slot] = []  # nothing can go on there
        self._verified, self._seen[slot] = None, held
