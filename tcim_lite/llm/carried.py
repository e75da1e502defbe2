"""What graphs with linear attention hand from run to run: convolution columns and states, one sequence's.

They only go forward. A cache forgets its last rows where a length says so; a state that has seen a token keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from .ports import lanes_of


def share_carried(owner: Any, others: list[Any]) -> None:
    """Makes every run of all graphs go on where the last one ended: each state is one buffer, read and written by all.

    A state that a graph writes where it reads it is no output of that graph. Without states this does nothing.

    Args:
        owner: Of the buffers; it may have several slots.
        others: Graphs of one slot, which go on with slot 0.
    """
    for slot in range(len(lanes_of(owner))):
        bind_carried(owner, carried_of(owner, slot), slot)
    for module in others:
        bind_carried(module, carried_of(owner))


def carried_of(module: Any, slot: int = 0) -> list[Any]:
    """What the states of a slot lie in: device tensors."""
    return [module.get_dev_input(name) for name in lanes_of(module)[slot].carried]


def bind_carried(module: Any, buffers: Sequence[Any], slot: int = 0) -> None:
    """Has a slot read its states from `buffers` and write them there."""
    results = {module.get_output_name(i) for i in range(module.get_num_outputs())}
    for name, buffer in zip(lanes_of(module)[slot].carried, buffers, strict=True):
        module.set_dev_input(name, buffer)
        if (result := _result_of(name)) in results:
            module.set_dev_output(result, buffer)


def gives_each_state(module: Any) -> bool:
    """Whether a graph returns its states after each token of a run, not after the last alone."""
    results = {module.get_output_name(i) for i in range(module.get_num_outputs())}
    return any(f"{_result_of(name)}_0" in results for lane in lanes_of(module) for name in lane.carried)


def states_after(module: Any, token: int) -> list[Any]:
    """What such a graph returns the states after token `token` of a run in, as `carried_of` orders them."""
    return [module.get_dev_output(f"{_result_of(name)}_{token}") for name in lanes_of(module)[0].carried]


def _result_of(name: str) -> str:
    """The output that hands on an input: conv_cache_out_3 of past_conv_cache_3."""
    return re.sub("^past_(conv_cache|recurrent_state)", r"\1_out", name)


def clear_carried(module: Any, slot: int | None = None) -> None:
    """Zeros the states of a slot, or of all, as a new sequence wants them."""
    lanes = lanes_of(module)
    for lane in lanes if slot is None else lanes[slot : slot + 1]:
        for name in lane.carried:
            info = module.get_input_info(name)
            module.set_input(name, np.zeros(info.shape, info.dtype))
