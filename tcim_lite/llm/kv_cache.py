"""Which inputs of a graph are KV caches, and how two modules come to share them."""

from __future__ import annotations

from os import PathLike
from typing import Any

import tcim_lite.runtime as tcim

from .carried import share_carried
from .lora import lora_names, share_lora
from .ports import is_cache, lanes_of


def cache_names(module: Any) -> list[str]:
    """Names of the KV cache inputs of `module`, in input order: those that `is_cache`."""
    names = [module.get_input_name(i) for i in range(module.get_num_inputs())]
    return [name for name in names if is_cache(name)]


def share_kv_cache(owner: Any, borrower: Any) -> int:
    """Binds every KV cache of `owner` into `borrower` by reference, position by position.

    `borrower` should have been loaded with these names as dummies, so that no second copy exists.

    Returns:
        The number of caches bound.

    Raises:
        ValueError: The modules have different numbers of caches, or caches of different shape or dtype; nothing is
            bound then.
    """
    theirs, ours = cache_names(owner), cache_names(borrower)
    if len(theirs) != len(ours):
        raise ValueError(
            f"cannot share KV caches: one module has {len(theirs)}, the other {len(ours)}; use both of one package, "
            "compiled without --batch"
        )
    for source, target in zip(theirs, ours, strict=True):
        got, want = owner.get_input_info(source), borrower.get_input_info(target)
        if got.shape != want.shape or got.dtype != want.dtype:
            raise ValueError(
                f"cannot share KV caches: {source} is {got.shape} {got.dtype.__name__}, {target} is {want.shape} "
                f"{want.dtype.__name__}; compile both graphs with one context length"
            )
    for source, target in zip(theirs, ours, strict=True):
        borrower.set_dev_input(target, owner.get_dev_input(source))
    return len(ours)


def load_pair(
    owner: str | PathLike[str], borrower: str | PathLike[str], weights: tcim.WeightManager
) -> tuple[tcim.Module, tcim.Module]:
    """Loads two graphs of one model, prefill and decode or verify, with one copy of the weights and of the KV caches.

    Args:
        owner: The graph whose caches both use.
        borrower: The other one; its caches, states and inputs of a LoRA are dummies and get no memory. Inputs of a LoRA
            are set to zeros, the base model.
        weights: Manager of the devices to load on.

    Raises:
        TcimError: A file that cannot be loaded.
        ValueError: The graphs' caches differ, or they have neither caches nor states.
    """
    first = tcim.load(owner, tcim.Option(weights))
    lent = [*cache_names(first), *(name for lane in lanes_of(first) for name in lane.carried)]
    if not lent:
        inputs = ", ".join(first.get_input_name(i) for i in range(first.get_num_inputs()))
        raise ValueError(
            f"{owner}: no input is a KV cache or a state, so it is not that of a language model: {inputs:.300}"
        )
    second = tcim.load(borrower, tcim.Option(weights).set_dummy_tensors([*lent, *lora_names(first)]))
    share_kv_cache(first, second)
    if len(lanes_of(first)) == 1:
        share_carried(first, [second])
    share_lora(first, [second])
    return first, second
