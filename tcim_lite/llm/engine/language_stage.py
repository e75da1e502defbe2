"""The graphs of language models as a stage."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

import tcim_lite.runtime as tcim

from ..carried import bind_carried, carried_of, clear_carried, gives_each_state, share_carried
from ..kv_cache import cache_names
from ..lora import lora_names, share_lora
from ..masks import Masks
from ..package import Package
from ..ports import check_decode, lanes_of, tokens_of
from ..prompt import run_graph
from ..step_states import StepStates
from .stage import DecodeStep, Stage


class LanguageStage(Stage):
    """A stage whose rows are those of an embedding, or hidden rows of the stage before.

    Args:
        prefill: As those of `Stage`.
        decode: As there. Of a package with multi-token prediction and one slot it is the verify graph.
        verify: As there.

    Raises:
        ValueError: The graphs do not fit together.
    """

    def __init__(self, prefill: Any, decode: Any, verify: Any = None):
        lanes = lanes_of(decode)
        # Of a stage without linear attention, only the number of tokens tells.
        by_verify = gives_each_state(decode) or (verify is None and tokens_of(decode) > 1)
        if by_verify:
            verify = decode
        else:
            check_decode(decode)
        self._masks = Masks(decode)
        for graph in (prefill, verify):
            if graph is not None and len(cache_names(graph)) != len(lanes[0].caches):
                raise ValueError(
                    f"the prefill or verify graph has {len(cache_names(graph))} KV caches, a slot of the decode graph "
                    f"{len(lanes[0].caches)}; use graphs of one package"
                )
        super().__init__(prefill, decode, verify, lanes)
        self.decodes_by_verify = by_verify
        self._rows_name = decode.get_input_name(0)
        self._bound: dict[int, int] = {}  # slot, by id of a graph
        self._lengths = [-1] * len(lanes)  # valid lengths that the decode graph has now
        self._values = [np.zeros(1, np.int32) for _ in lanes]  # for `set_input`, which copies
        for lane in lanes:
            decode.set_input(lane.current, np.array([1], np.int32))  # set once: inputs keep their value
            lane.clear_deepstack(decode)
            lane.set_linear_mask(decode, 1)
        self._masked = [1] * len(lanes)  # tokens that the masks of linear attention let through
        self.carries = bool(lanes[0].carried)
        self._states = [carried_of(decode, slot) for slot in range(len(lanes))]
        share_carried(decode, [])
        self._step_states = None
        if verify is not None and gives_each_state(verify):
            self._step_states = StepStates(verify, self._states)
        clear_carried(decode)  # a run reads those of every slot

    @classmethod
    def load(
        cls,
        prefill: str | PathLike[str],
        decode: str | PathLike[str],
        weights: tcim.WeightManager,
        verify: str | PathLike[str] | None = None,
    ) -> LanguageStage:
        """Loads the graphs with one copy of the weights and of the caches.

        Raises:
            TcimError: A file that cannot be loaded.
            ValueError: Graphs that do not fit together.
        """
        owner = tcim.load(str(decode), option=tcim.Option(weights))
        # Slot 0 has the names of prefill. Declared as dummies, they cost the others no memory.
        first = lanes_of(owner)[0]
        dummies = [*first.caches, *first.carried, *lora_names(owner)]
        others = [
            None if path is None else tcim.load(str(path), option=tcim.Option(weights).set_dummy_tensors(dummies))
            for path in (prefill, verify)
        ]
        share_lora(owner, [other for other in others if other is not None])
        return cls(others[0], owner, others[1])

    def run_prompt(
        self, graph: Any, slot: int, rows: np.ndarray, valid: int, current: int, **others: Any
    ) -> np.ndarray:
        if self._bound.pop(id(graph), None) != slot:  # none until all are bound
            for name, cache in zip(cache_names(graph), self.caches[slot], strict=True):
                graph.set_dev_input(name, cache)
            if self._step_states is None or graph is not self.verify:
                bind_carried(graph, self._states[slot])
        self._bound[id(graph)] = slot
        if self._step_states is not None and graph is self.verify:
            self._step_states.bind(slot, valid)
        self.before_run()
        return run_graph(graph, rows, valid, current, **others)

    def table(self, package: Package, last: Stage) -> np.ndarray:
        """The row of each token, [V, H], for this stage, the first of a package.

        Raises:
            FileNotFoundError, ValueError: As `Package.embedding_of`.
        """
        return package.embedding_of(self.prefill, last.prefill)

    def settle(self, valid: int) -> None:
        """Brings the states after `valid` tokens, where a verify run has them, to where all runs of its slot read."""
        if self._step_states is not None:
            self._step_states.settle(valid)

    def begin(self, slot: int) -> None:
        """Says that the next run of a slot is the first of a sequence."""
        if self._step_states is not None:
            self._step_states.reset(slot)
        if self.carries:
            clear_carried(self.decode, slot)

    def run_decode(self, rows: np.ndarray, step: DecodeStep, output: str | None = None) -> np.ndarray:
        """As `Stage.run_decode`.

        A length that has not changed is not set again, but for slots at work, which say it in every run (S-203).
        """
        for slot, (lane, length) in enumerate(zip(self.lanes, step.lengths, strict=True)):
            if slot in step.at_work or self._lengths[slot] != length:
                self._lengths[slot] = -1
                value = self._values[slot]
                value[0] = length
                shift = step.shifts.get(slot, 0) if slot in step.at_work else 0
                lane.set_place(self.decode, value, value + np.int32(shift) if shift else None)
                self._masks.set(length, 1, slot)
                self._lengths[slot] = length
            # What is masked leaves the states as they are.
            if lane.linear_mask is not None and self._masked[slot] != (takes_part := int(slot in step.at_work)):
                lane.set_linear_mask(self.decode, takes_part)
                self._masked[slot] = takes_part
        if self.lanes[0].layer_inputs is None:
            self.decode.set_input(self._rows_name, rows)
        else:
            self.lanes[0].set_rows(self.decode, rows)
        self.before_run()
        self.decode.run()
        self.decode.sync()
        return self.decoded(output or self.outputs[0])
