"""What graphs with linear attention hand from run to run: convolution columns and states, one sequence's.

They only go forward. A cache forgets its last rows where a length says so; a state that has seen a token keeps it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .ports import lanes_of


def share_carried(owner: Any, others: list[Any]) -> None:
    """Makes every run of all graphs go on where the last one ended: each state is one buffer, read and written by all.

    Without states this does nothing.
    """
    (first,) = lanes_of(owner)
    for index, name in enumerate(first.carried):
        buffer = owner.get_dev_input(name)
        for module in (owner, *others):
            (lane,) = lanes_of(module)
            if module is not owner:
                module.set_dev_input(lane.carried[index], buffer)
            module.set_dev_output(module.get_output_name(1 + index), buffer)


def clear_carried(module: Any) -> None:
    """Zeros the states, as a new sequence wants them."""
    for lane in lanes_of(module):
        for name in lane.carried:
            info = module.get_input_info(name)
            module.set_input(name, np.zeros(info.shape, info.dtype))
