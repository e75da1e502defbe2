"""Inputs that have what a LoRA adds to weights. All graphs of a model read the same memory; zeros add nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .ports import is_lora


def lora_names(module: Any) -> list[str]:
    """Names of these inputs, in input order."""
    names = (module.get_input_name(i) for i in range(module.get_num_inputs()))
    return [name for name in names if is_lora(name)]


def share_lora(owner: Any, borrowers: Iterable[Any] = ()) -> None:
    """Zeros these inputs of `owner`, and binds those of the others to them."""
    for name in lora_names(owner):
        info = owner.get_input_info(name)
        owner.set_input(name, np.zeros(info.shape, info.dtype))
        for borrower in borrowers:
            borrower.set_dev_input(name, owner.get_dev_input(name))
