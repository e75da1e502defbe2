"""The graphs of one pipeline stage, and the caches they share; a package without stages is one of them.

The decode graph owns the caches of all slots. The prefill and verify graphs take one prompt; they are bound to the
caches of the slot that they work for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


class Stage:
    """Prefill, decode and maybe verify graphs of the same layers.

    Args:
        prefill: Module of one prompt, [1, P, H] to logits [1, 1, V] (or [1, P, V]); of a stage that is not the last, to
            hidden rows [1, P, H].
        decode: Module of B slots, [B, 1, H] to logits [B, 1, V], or hidden rows [B, 1, H]; it owns the caches. Of a
            package with multi-token prediction and one slot it is the verify graph.
        verify: Module of one prompt, [1, T, H] to the logits of all its tokens [1, T, V], or hidden rows [1, T, H].

    Attributes:
        caches: Of each slot, device tensors [1, Hkv, C, D].
        context_length: Rows C of a slot.
        carries: Layers with linear attention have states, which only go forward. A slot's are shared as its caches are.
        outputs: Names of those of `decode`.
        decodes_by_verify: There is no graph that decodes one token alone.
        before_run: Called when the inputs of a run are set; may be replaced.
        hears: Prompts need a sound.

    Raises:
        ValueError: The graphs do not fit together.
    """

    hears = False

    def __init__(self, prefill: Any, decode: Any, verify: Any = None):
        self.prefill, self.decode, self.verify = prefill, decode, verify
        self.lanes = lanes_of(decode)
        # Of a stage without linear attention, only the number of tokens tells.
        self.decodes_by_verify = gives_each_state(decode) or (verify is None and tokens_of(decode) > 1)
        if self.decodes_by_verify:
            self.verify = decode
        else:
            check_decode(decode)
        self._masks = Masks(decode)
        for graph in (prefill, self.verify):
            if graph is not None and len(cache_names(graph)) != len(self.lanes[0].caches):
                raise ValueError(
                    f"the prefill or verify graph has {len(cache_names(graph))} KV caches, a slot of the decode graph "
                    f"{len(self.lanes[0].caches)}; use graphs of one package"
                )
        self.caches = [[decode.get_dev_input(name) for name in lane.caches] for lane in self.lanes]
        self.context_length: int = self.caches[0][0].shape[2]
        self._rows_name = decode.get_input_name(0)
        self.outputs = [decode.get_output_name(i) for i in range(decode.get_num_outputs())]
        self._bound: dict[int, int] = {}  # slot, by id of a graph
        self.before_run: Callable[[], None] = lambda: None
        self._lengths = [-1] * len(self.lanes)  # valid lengths that the decode graph has now
        self._values = [np.zeros(1, np.int32) for _ in self.lanes]  # for `set_input`, which copies
        for lane in self.lanes:
            decode.set_input(lane.current, np.array([1], np.int32))  # set once: inputs keep their value
            lane.clear_deepstack(decode)
            lane.set_linear_mask(decode, 1)
        self._masked = [1] * len(self.lanes)  # tokens that the masks of linear attention let through
        self.carries = bool(self.lanes[0].carried)
        self._states = [carried_of(decode, slot) for slot in range(len(self.lanes))]
        share_carried(decode, [])
        self._step_states = None
        if self.verify is not None and gives_each_state(self.verify):
            self._step_states = StepStates(self.verify, self._states)
        clear_carried(decode)  # a run reads those of every slot

    @classmethod
    def load(
        cls,
        prefill: str | PathLike[str],
        decode: str | PathLike[str],
        weights: tcim.WeightManager,
        verify: str | PathLike[str] | None = None,
    ) -> Stage:
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
        """Runs `prefill` or `verify` on the caches of a slot; returns output 0, arguments as those of `run_graph`."""
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

    def run_decode(
        self,
        rows: np.ndarray,
        lengths: Sequence[int],
        at_work: Mapping[int, Any],
        output: str | None = None,
        shifts: Mapping[int, int] | None = None,
    ) -> np.ndarray:
        """Runs `decode` with rows [B, 1, H] and the valid length of every slot; returns output 0, or the one named.

        A length that has not changed is not set again, but for slots at work, which say it in every run (S-203).
        `shifts` has what the positions of slots at work are more than their lengths, where they are something else.
        """
        for slot, (lane, length) in enumerate(zip(self.lanes, lengths, strict=True)):
            if slot in at_work or self._lengths[slot] != length:
                self._lengths[slot] = -1
                value = self._values[slot]
                value[0] = length
                shift = (shifts or {}).get(slot, 0) if slot in at_work else 0
                lane.set_place(self.decode, value, value + np.int32(shift) if shift else None)
                self._masks.set(length, 1, slot)
                self._lengths[slot] = length
            # What is masked leaves the states as they are.
            if lane.linear_mask is not None and self._masked[slot] != (takes_part := int(slot in at_work)):
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

    def decoded(self, output: str) -> np.ndarray:
        """An output of the last run of `decode`."""
        return self.decode.get_output(output).numpy()

    def read_rows(self, slot: int, count: int) -> list[np.ndarray]:
        """Copies of the first rows of a slot's caches, each [1, Hkv, count, D]."""
        return [_first_rows(cache, count).to_host(True).numpy() for cache in self.caches[slot]]

    def write_rows(self, slot: int, rows: Sequence[np.ndarray], count: int) -> None:
        """Writes the first rows of a slot's caches from arrays that `read_rows` made."""
        for cache, values in zip(self.caches[slot], rows, strict=True):
            part = np.ascontiguousarray(values[:, :, :count])
            tcim.Tensor(tcim.TensorInfo(part.shape, part.dtype.type), part).copy_to(_first_rows(cache, count))

    def copy_rows(self, source: int, target: int, count: int) -> None:
        """Copies the first rows of one slot's caches into another's, on the device."""
        for theirs, ours in zip(self.caches[source], self.caches[target], strict=True):
            _first_rows(theirs, count).copy_to(_first_rows(ours, count))


def _first_rows(cache: Any, count: int) -> Any:
    """A view of the first rows of a cache [1, Hkv, C, D]."""
    _, heads, _, size = cache.shape
    return cache.select_roi([0, 0, 0, 0], [1, heads, count, size])
