"""What random sequences of calls begin with: modules, the values they take, and what all rules share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple

from . import under_test as rt
from .api_model import ADD, ATTENTION, CONTEXT, LARGEST, LINEAR, ROLES, Graph, World
from .kit import Kit

ANY_ROLE = st.integers(0, 30)
NUMBERS = st.integers(-50, 50)
FLOATS = ["float16", "float32"]
FORMS: dict[str, Callable[[Any], Any]] = {
    "as declared": lambda values: values,
    "float64 or int64": lambda values: values.astype("int64" if values.dtype.kind == "i" else "float64"),
    "a list": lambda values: values.tolist(),
    "flat": lambda values: values.reshape(-1),
    "backwards in memory": lambda values: np.ascontiguousarray(values[..., ::-1])[..., ::-1],
    "columns first": np.asfortranarray,
    "a host tensor": lambda values: rt.Tensor(rt.TensorInfo(values.shape, values.dtype), values),
    "big-endian": lambda values: values.astype(values.dtype.newbyteorder(">")),
}
# TensorInfo(shape, dtype), by which a host tensor is made, is not in the vendor's Python API.
NOT_PORTABLE = ("a host tensor",)
graphs = Bundle("graphs")
tensors = Bundle("tensors")
managers = Bundle("managers")
streams = Bundle("streams")


class Calls(RuleBasedStateMachine):
    """Calls that are checked against api_model.py; rules that only some runtimes know do nothing with the others."""

    kit: Kit
    emulator: bool

    graphs, tensors, managers, streams = graphs, tensors, managers, streams

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.rng = np.random.default_rng(0)

    def role(self, number: int) -> str:
        """One of the models that there are."""
        roles = [role for role in ROLES if self.kit.has_model(role)]
        return roles[number % len(roles)]

    def values(self, graph: Graph, name: str, number: int) -> Any:
        """Values for a slot that keep everything exact; lengths that a run accepts."""
        info = graph.infos[name]
        if name == "valid_length":
            return np.full(info.shape, abs(number) % (CONTEXT - 4), info.dtype)
        if name == "current_length":
            return np.full(info.shape, 1 + abs(number) % graph.infos["input_1"].shape[1], info.dtype)
        spread = np.arange(int(np.prod(info.shape))) * (abs(number) % 7 + 1) % 11
        values = (spread + number) % 101 - 50
        return (values / 64 if graph.kind == ATTENTION else values).astype(info.dtype).reshape(info.shape)

    @initialize(target=graphs, chosen=st.lists(ANY_ROLE, min_size=3, max_size=5))
    def begin(self, chosen: list[int]) -> Any:
        return multiple(*(self.add(self.role(number), None, []) for number in chosen))

    def add(self, role: str, manager: Any, dummies: list[str]) -> Graph:
        option = rt.Option(manager[0] if manager else rt.WeightManager(0))
        if dummies:
            option = option.set_dummy_tensors(dummies)
        return self.world.add_graph(role, rt.load(self.kit.model(role), option=option), dummies)

    def make_legal(self, graph: Graph) -> None:
        """Inputs that a run takes and whose results are exact."""
        self.world.settle(*graph.slots.values())
        if graph.kind == ATTENTION:
            valid, current = graph.lengths()
            if not (valid >= 0 and 1 <= current <= graph.infos["input_1"].shape[1] and valid + current <= CONTEXT):
                for name in ("valid_length", "current_length"):
                    self.world.write(graph, name, self.values(graph, name, 0), FORMS["as declared"])
                if graph.lengths() != (0, 1):  # one tensor for both
                    for name in ("valid_length", "current_length"):
                        self.world.write(graph, name, np.ones(1, np.int32), FORMS["as declared"])
        names = {ADD: ["a", "b"], LINEAR: ["x"], ATTENTION: ["input_1", *graph.caches]}[graph.kind]
        for name in names:
            view = graph.slots[name]
            assert view is not None
            limit = 16 if graph.kind == ATTENTION else LARGEST / 2
            exact = graph.kind == ATTENTION or np.array_equal(view, np.rint(view))
            if not exact or np.abs(view.astype(np.float64)).max() > limit:
                self.world.write(graph, name, self.values(graph, name, 1), FORMS["as declared"])

    def teardown(self) -> None:
        note(f"{len(self.world.graphs)} modules, {len(self.world.held)} tensors")
        self.world.check_all()
