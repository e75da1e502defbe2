"""What api_machine.py chooses from: slots, bindings that mean something, and wrong calls."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import under_test as rt
from .api_model import ADD, ATTENTION, LINEAR, Graph

INPUTS = {
    ADD: ["a", "b", "image", "length"],
    LINEAR: ["x"],
    ATTENTION: [
        "input_1",
        "valid_length",
        "current_length",
        "model_layers_0_self_attn_kcache_input",
        "model_layers_0_self_attn_vcache_input",
    ],
}


def slot(graph: Graph, index: int, with_output: bool = True) -> str:
    """The name of a slot."""
    names = list(graph.infos) if with_output else [name for name in graph.infos if name != graph.output]
    return names[index % len(names)]


def fits(graph: Graph, name: str, view: Any) -> bool:
    """Whether dtype and element count are those of the slot."""
    info = graph.infos[name]
    return bool(view.dtype == info.dtype and view.size == np.prod(info.shape))


def allowed(graph: Graph, name: str, view: Any, emulator: bool) -> bool:
    """Whether the contract says what a run does with this binding.

    One tensor for several slots of a graph is a matter of C-9: an output onto an input. Two caches in one memory, or a
    cache that is an input too, have no meaning; parts that overlap are the emulator's business.
    """
    for other, bound in graph.slots.items():
        if other == name or bound is None or not np.may_share_memory(bound, view):
            continue
        if name in graph.caches or other in graph.caches:
            return False
        same = bound.ctypes.data == view.ctypes.data and bound.nbytes == view.nbytes
        if not same and not emulator:
            return False
        if graph.kind == ATTENTION and graph.output in (name, other) and not same:
            return False
    return True


def _wrong_size(graph: Graph, name: str) -> None:
    graph.real.set_input(name, np.zeros(int(np.prod(graph.infos[name].shape)) + 1, graph.infos[name].dtype))


def _wrong_dtype(graph: Graph, name: str) -> None:
    info = graph.infos[name]
    graph.real.set_dev_input(name, rt.Tensor(info.astype(np.int16)))


# name: (error, call, whether another runtime may do otherwise)
WRONG: dict[str, tuple[str, Any, bool]] = {
    "an unknown input is set": ("UnknownNameError", lambda g, n: g.real.set_input("nope", np.zeros(1)), False),
    "an unknown input is asked for": ("UnknownNameError", lambda g, n: g.real.get_input_info("nope"), False),
    "an unknown input is taken": ("UnknownNameError", lambda g, n: g.real.get_dev_input(n + "x"), False),
    "an unknown output is read": ("UnknownNameError", lambda g, n: g.real.get_output(n), False),
    "an index is too large": ("RuntimeError", lambda g, n: g.real.get_input_name(99), False),
    "the element count is wrong": ("ShapeError", _wrong_size, False),
    "the dtype of a device tensor is wrong": ("ShapeError", _wrong_dtype, False),
    "rounds are none": ("ValueError", lambda g, n: g.real.run(False, rt.RunOption(0)), True),
    "an option is no option": ("TypeError", lambda g, n: g.real.run(False, 3), True),
    "text is set": ("ArgumentError", lambda g, n: g.real.set_input(n, "text"), True),
    "nothing is set": ("ArgumentError", lambda g, n: g.real.set_input(n, None), True),
    "an array is bound": ("TypeError", lambda g, n: g.real.set_dev_input(n, np.zeros(3)), True),
    "a view is outside": ("ShapeError", lambda g, n: g.take(g.output).select_roi([99] * 3, [1] * 3), False),
    "a cast names no type": ("ValueError", lambda g, n: g.take(g.output).astype(np.float64), True),
    "an info has another size": (
        "ShapeError",
        lambda g, n: g.real.get_output(g.output, rt.TensorInfo((7,), np.float16)),
        True,
    ),
    "the model is missing": ("RuntimeError", lambda g, n: rt.load("/nowhere/at/all.hmm"), False),
}
