"""What graphs with linear attention hand from run to run: convolution columns and states, one sequence's.

They only go forward. A cache forgets its last rows where a length says so; a state that has seen a token keeps it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .ports import lanes_of


def share_carried(owner: Any, others: list[Any]) -> None:
    """Makes every run of all graphs go on where the last one ended: each state is one buffer, read and written by all.

    A state that a graph writes where it reads it is no output of that graph. Without states this does nothing.
    """
    (first,) = lanes_of(owner)
    for name in first.carried:
        buffer, result = owner.get_dev_input(name), _result_of(name)
        for module in (owner, *others):
            if module is not owner:
                module.set_dev_input(name, buffer)
            if result in {module.get_output_name(i) for i in range(module.get_num_outputs())}:
                module.set_dev_output(result, buffer)


def _result_of(name: str) -> str:
    """The output that hands on an input: conv_cache_out_3 of past_conv_cache_3."""
    return re.sub("^past_(conv_cache|recurrent_state)", r"\1_out", name)


def clear_carried(module: Any) -> None:
    """Zeros the states, as a new sequence wants them."""
    for lane in lanes_of(module):
        for name in lane.carried:
            info = module.get_input_info(name)
            module.set_input(name, np.zeros(info.shape, info.dtype))
