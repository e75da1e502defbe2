"""What the slots of an engine ask of the graphs of one pipeline stage; a package without stages is one of them.

The decode graph owns the caches of all slots. The prefill and verify graphs take one prompt; they are bound to the
caches of the slot that they work for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

import tcim_lite.runtime as tcim

from ..package import Package
from ..ports import Lane
from ..prompt import context_length


@dataclass(frozen=True)
class DecodeStep:
    """A step of all slots.

    Attributes:
        lengths: The valid length of every slot.
        at_work: Slots that take part.
        shifts: What the positions of slots at work are more than their lengths, where they are something else.
    """

    lengths: Sequence[int]
    at_work: Collection[int]
    shifts: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))


class Stage(ABC):
    """Prefill, decode and maybe verify graphs of the same layers.

    Args:
        prefill: Module of one prompt, [1, P, _] to logits [1, 1, V] (or [1, P, V]); of a stage that is not the last, to
            hidden rows [1, P, H].
        decode: Module of B slots, [B, 1, _] to logits [B, 1, V], or hidden rows [B, 1, H]; it owns the caches.
        verify: Module of one prompt, [1, T, _] to the logits of all its tokens [1, T, V], or hidden rows [1, T, H].
        lanes: The inputs of each slot of `decode`.

    Attributes:
        caches: Of each slot, device tensors [1, Hkv, C, D].
        context_length: Rows C of a slot.
        carries: Layers with linear attention have states, which only go forward. A slot's are shared as its caches are.
        outputs: Names of those of `decode`.
        decodes_by_verify: There is no graph that decodes one token alone.
        before_run: Called when the inputs of a run are set; may be replaced.
        hears: Prompts need a sound.
    """

    hears = False
    carries = False
    decodes_by_verify = False

    def __init__(self, prefill: Any, decode: Any, verify: Any, lanes: Sequence[Lane]):
        self.prefill, self.decode, self.verify = prefill, decode, verify
        self.lanes = lanes
        self.caches = [[decode.get_dev_input(name) for name in lane.caches] for lane in lanes]
        self.context_length: int = context_length(decode)
        self.outputs = [decode.get_output_name(i) for i in range(decode.get_num_outputs())]
        self.before_run: Callable[[], None] = lambda: None

    @abstractmethod
    def table(self, package: Package, last: Stage) -> np.ndarray:
        """The row of each token, [V, _], for this stage, the first of a package."""

    @abstractmethod
    def run_prompt(
        self, graph: Any, slot: int, rows: np.ndarray, valid: int, current: int, **others: Any
    ) -> np.ndarray:
        """Runs `prefill` or `verify` on the caches of a slot; returns output 0, arguments as those of `run_graph`."""

    @abstractmethod
    def run_decode(self, rows: np.ndarray, step: DecodeStep, output: str | None = None) -> np.ndarray:
        """Runs `decode` with rows [B, 1, _]; returns output 0, or the one named."""

    def begin(self, slot: int) -> None:  # noqa: B027 (only states have a beginning)
        """Says that the next run of a slot is the first of a sequence."""

    def settle(self, valid: int) -> None:  # noqa: B027 (as above)
        """Brings the states after `valid` tokens, where a verify run has them, to where all runs of its slot read."""

    def decoded(self, output: str) -> np.ndarray:
        """An output of the last run of `decode`."""
        values: np.ndarray = self.decode.get_output(output).numpy()
        return values

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
