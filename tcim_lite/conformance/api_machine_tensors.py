"""Random calls of tensors: made, viewed, converted, copied, read."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import consumes, multiple, rule

from . import under_test as rt
from .api_calls import slot
from .api_machine_base import FLOATS, NUMBERS, Calls, graphs, tensors
from .api_model import Graph, Held
from .checks import refused

CUTS = st.lists(st.tuples(st.integers(0, 31), st.integers(1, 32)), min_size=4, max_size=4)  # start, extent of each axis


class TensorCalls(Calls):
    """Those of tensors."""

    @rule(target=tensors, graph=graphs, index=st.integers(0, 5), on_device=st.booleans(), number=NUMBERS)
    def make_tensor(self, graph: Graph, index: int, on_device: bool, number: int) -> Any:
        name = slot(graph, index)
        info = graph.infos[name]
        if on_device:
            real = rt.Tensor(info)
            real.set_zero()
            return self.world.hold(real, np.zeros(info.shape, info.dtype), True)
        values = self.values(graph, name, number)
        return self.world.hold(rt.Tensor(info.ascontiguous(), values), values.copy(), False)

    @rule(target=tensors, held=tensors, copy=st.booleans())
    def clone(self, held: Held, copy: bool) -> Any:
        self.world.settle(held.view)
        real = held.real.clone(copy)
        if not copy:
            real.set_zero()
            return self.world.hold(real, np.zeros(held.view.shape, held.view.dtype), held.on_device)
        twin = np.zeros(held.view.shape, held.view.dtype)
        twin[...] = held.view
        # Of a view the clone keeps the strides, gaps included; only its elements are bound to anything.
        if not held.view.flags.c_contiguous:
            self.world.compare(real, twin, "a clone")
            return multiple()
        return self.world.hold(real, twin, held.on_device)

    @rule(
        target=tensors,
        held=tensors,
        cuts=CUTS,
    )
    def view(self, held: Held, cuts: Any) -> Any:
        shape = held.view.shape
        start = [cut[0] % extent for cut, extent in zip(cuts, shape, strict=False)]
        extents = [1 + cut[1] % (extent - first) for cut, extent, first in zip(cuts, shape, start, strict=False)]
        real = held.real.select_roi(start, extents)
        cut = tuple(slice(first, first + extent) for first, extent in zip(start, extents, strict=True))
        return self.world.hold(real, held.view[cut], held.on_device)

    @rule(
        target=tensors,
        held=tensors,
        dtype=st.sampled_from(FLOATS),
        verb=st.sampled_from(["astype", "cast"]),
    )
    def convert(self, held: Held, dtype: str, verb: str) -> Any:
        self.world.settle(held.view)
        real = getattr(held.real, verb)(getattr(np, dtype))
        return self.world.hold(real, np.ascontiguousarray(held.view.astype(dtype)), held.on_device)

    @rule(source=tensors, choice=st.integers(0, 20), convert=st.booleans())
    def copy(self, source: Held, choice: int, convert: bool) -> None:
        others = [held for held in self.world.held if not np.may_share_memory(held.view, source.view)]
        same = [held for held in others if held.view.size == source.view.size]
        chosen = others if choice % 4 == 0 else same
        if chosen:
            into = chosen[choice % len(chosen)]
        else:
            real = rt.Tensor(source.real.info.ascontiguous())
            real.set_zero()
            into = self.world.hold(real, np.zeros(source.view.shape, source.view.dtype), source.on_device)
        if into.view.dtype.kind != "f" and source.view.dtype != into.view.dtype:
            return  # what fits an integer type is a matter of its own
        self.world.settle(source.view, into.view)
        verb = source.real.cast_to if convert else source.real.copy_to
        if source.view.size == into.view.size and (convert or source.view.dtype == into.view.dtype):
            verb(into.real)
            into.view[...] = source.view.astype(into.view.dtype).reshape(into.view.shape)
        else:
            with refused("ShapeError"):
                verb(into.real)
            self.world.compare(into.real, into.view, "the target of a refused copy")

    @rule(held=tensors)
    def set_zero(self, held: Held) -> None:
        self.world.settle(held.view)
        held.real.set_zero()
        held.view[...] = 0

    @rule(held=tensors, how=st.sampled_from(["numpy", "asarray", "to_host", "to_host(True)"]))
    def read(self, held: Held, how: str) -> None:
        self.world.settle(held.view)
        if how == "asarray":
            np.testing.assert_array_equal(np.asarray(held.real), held.view)
            return
        real = held.real if how == "numpy" else held.real.to_host(how.endswith("(True)"))
        self.world.compare(real, held.view, f"{how} of a tensor")

    @rule(held=consumes(tensors))
    def drop_tensor(self, held: Held) -> None:
        self.world.settle(held.view)
        self.world.held.remove(held)
        if all(graph.sink is not held for graph in self.world.graphs):
            held.real = None
