"""What a sequence of calls must have done, in numpy.

Every slot and tensor is an array; those that share bytes in the runtime are views of one array here. A call goes to the
runtime and to the arrays, and the two are compared. What the contract leaves open is not asked: `api_machine.py` makes
such calls of the emulator only, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import under_test as rt
from .checks import refused, set_input_binds

Array = np.ndarray[Any, Any]
HEADS, HEAD_DIM, CONTEXT = 2, 64, 32
WEIGHT = np.arange(128, dtype=np.float32).reshape(16, 8) / 16
ADD, LINEAR, ATTENTION = "add", "linear", "attention"
ROLES = {
    "add": ADD,
    "add_4x5": ADD,
    "linear_prefill": LINEAR,
    "linear_decode": LINEAR,
    "attention_prefill": ATTENTION,
    "attention_decode": ATTENTION,
    "attention_verify": ATTENTION,
}
# Sums of so large integers are exact in float16.
LARGEST = 1000
# Of attention against float64, times the largest value (cases/numbers.py).
TOLERANCE = 8 * 2.0**-11


class Held:
    """A tensor and the view of its bytes."""

    def __init__(self, real: Any, view: Array, on_device: bool) -> None:
        self.real = real
        self.view = view
        self.on_device = on_device


class Graph:
    """A module: what its slots are bound to. None: an unbound dummy."""

    def __init__(self, role: str, real: Any, dummies: list[str]) -> None:
        self.role = role
        self.kind = ROLES[role]
        self.real = real
        self.dummies = dummies
        self.stream: object = None  # the Held stream; None: the default
        self.infos = {real.get_input_name(i): real.get_input_info(real.get_input_name(i)) for i in range(inputs(real))}
        self.output = real.get_output_name(0)
        self.infos[self.output] = real.get_output_info(self.output)
        self.slots: dict[str, Array | None] = {
            name: np.zeros(info.shape, info.dtype) for name, info in self.infos.items()
        }
        self.sink: Held | None = None
        self.busy = False  # runs may be queued

    @property
    def caches(self) -> list[str]:
        """Names of the cache inputs."""
        return [name for name in self.infos if "cache" in name]

    def takes(self, name: str, verb: str) -> bool:
        """Whether this call binds device tensors to the slot in this version of the runtime (section 7.2)."""
        return verb != "set_input" or name in self.dummies or set_input_binds()

    def take(self, name: str) -> Any:
        """The runtime's tensor of a slot."""
        return self.real.get_dev_output(name) if name == self.output else self.real.get_dev_input(name)

    def unbound(self) -> list[str]:
        """Inputs without memory."""
        return [name for name, view in self.slots.items() if view is None]

    def lengths(self) -> tuple[int, int]:
        """valid_length and current_length as the next run sees them."""
        valid, current = self.slots["valid_length"], self.slots["current_length"]
        assert valid is not None
        assert current is not None
        return int(valid.flat[0]), int(current.flat[0])

    def compute(self) -> tuple[dict[str, Array], Array]:
        """Of one run: new values of caches, and the output, for attention in float64."""
        slots = {name: view for name, view in self.slots.items() if view is not None}
        if self.kind == ADD:
            return {}, slots["a"].reshape(self.infos["a"].shape) + slots["b"].reshape(self.infos["b"].shape)
        if self.kind == LINEAR:
            return {}, slots["x"].reshape(self.infos["x"].shape) @ WEIGHT.T
        valid, current = self.lengths()
        tokens = self.infos["input_1"].shape[1]
        rows = slots["input_1"].reshape(tokens, HEADS, HEAD_DIM)[:current]
        written = {}
        for name in self.caches:
            written[name] = slots[name].reshape(self.infos[name].shape).copy()
            written[name][0, :, valid : valid + current] = rows.transpose(1, 0, 2)
        keys, values = (written[name][0, :, : valid + current].astype(np.float64) for name in self.caches)
        logits = np.zeros(self.infos[self.output].shape)
        for token in range(current):
            seen = valid + token + 1
            scores = np.einsum("hd,hkd->hk", rows[token].astype(np.float64), keys[:, :seen]) / np.sqrt(HEAD_DIM)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            logits[0, token] = np.einsum("hk,hkd->hd", weights, values[:, :seen]).reshape(-1)
        return written, logits


class Pending:
    """Outputs that are known within a bound; whoever reads or uses them first notes the runtime's bits."""

    def __init__(self, real: Any, view: Array, expected: Array, live: int, bound: float) -> None:
        self.real, self.view, self.expected, self.live, self.bound = real, view, expected, live, bound

    def settle(self) -> None:
        """Compares, and takes over what was found."""
        found = self.real.numpy().reshape(self.expected.shape)
        error = np.abs(found[:, : self.live].astype(np.float64) - self.expected[:, : self.live]).max()
        assert error <= self.bound, f"attention is {error} off, allowed is {self.bound}"
        if rt.is_emulator():
            assert not found[:, self.live :].any(), "rows that are not live are zero"
        self.view[...] = found.reshape(self.view.shape)


class World:
    """All there is."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.held: list[Held] = []
        self.pending: list[Pending] = []
        self.calls = 0

    def settle(self, *views: Array | None) -> None:
        """Before these bytes are used: their values become known, and no other runtime's queue still works on them."""
        for entry in list(self.pending):
            if any(view is not None and np.may_share_memory(view, entry.view) for view in views):
                self.pending.remove(entry)
                entry.settle()
        if not rt.is_emulator():  # that reads and host writes wait is the emulator's choice
            for graph in self.graphs:
                self.sync(graph)

    def sync(self, graph: Graph) -> None:
        """Waits for a module's runs."""
        if graph.busy:
            graph.real.sync()
            graph.busy = False

    def add_graph(self, role: str, real: Any, dummies: list[str]) -> Graph:
        """A module that was loaded; what is not specified of its memory is made zero."""
        graph = Graph(role, real, dummies)
        for name in dummies:
            if name in graph.slots:
                graph.slots[name] = None
        if not rt.is_emulator():
            for name, view in graph.slots.items():
                if view is not None:
                    graph.take(name).set_zero()
        self.graphs.append(graph)
        return graph

    def hold(self, real: Any, view: Array, on_device: bool) -> Held:
        """A tensor."""
        held = Held(real, view, on_device)
        self.held.append(held)
        return held

    def compare(self, real: Any, view: Array, what: str) -> None:
        """The tensor has these values, bit for bit."""
        self.settle(view)
        found = real.numpy()
        assert found.dtype == view.dtype, f"{what}: {found.dtype}, expected {view.dtype}"
        assert found.size == view.size, f"{what}: {found.shape}, expected {view.shape}"
        same = np.array_equal(found.reshape(-1), view.reshape(-1))
        assert same, f"{what} holds\n{found.reshape(-1)[:24]}, expected\n{view.reshape(-1)[:24]}"

    def check_graph(self, graph: Graph) -> None:
        """Every slot holds what the model says."""
        for name, view in graph.slots.items():
            if view is not None:
                self.compare(graph.take(name), view, f"{graph.role} {name}")
        if graph.sink is not None:
            self.compare(graph.sink.real, graph.sink.view, f"the sink of {graph.role}")

    def check_all(self) -> None:
        """Everything holds what the model says."""
        for graph in self.graphs:
            self.check_graph(graph)
        for held in self.held:
            self.compare(held.real, held.view, "a tensor")

    def write(self, graph: Graph, name: str, values: Array, form: Callable[[Array], Any]) -> None:
        """set_input with host data: through the binding, or into new memory of a dummy (C-2, C-7)."""
        view = graph.slots[name]
        self.settle(view)
        graph.real.set_input(name, form(values))
        if view is None:
            view = graph.slots[name] = np.zeros(graph.infos[name].shape, graph.infos[name].dtype)
        view[...] = values.astype(view.dtype).reshape(view.shape)

    def bind(self, graph: Graph, name: str, held: Held, verb: str) -> bool:
        """A device tensor to a slot: by reference, or refused with nothing changed."""
        info = graph.infos[name]
        view = held.view
        if view.dtype != info.dtype or view.size != int(np.prod(info.shape)):
            with refused("ShapeError"):
                getattr(graph.real, verb)(name, held.real)
            return False
        if not view.flags.c_contiguous:
            if rt.is_emulator():
                with refused("ShapeError", "dense"):
                    getattr(graph.real, verb)(name, held.real)
            return False
        if not graph.takes(name, verb):
            if rt.is_emulator():
                with refused("StateError", "set_dev_input", "UNINITIALIZED"):
                    getattr(graph.real, verb)(name, held.real)
            return False
        getattr(graph.real, verb)(name, held.real)
        graph.slots[name] = view.view().reshape(info.shape)
        assert np.shares_memory(graph.slots[name], view)
        if name == graph.output:
            graph.sink = None
        return True

    def run(self, graph: Graph, rounds: int, call: Callable[[], None]) -> None:
        """A legal run; the arrays change now, the memory some time until it is read."""
        self.settle(*(view for name, view in graph.slots.items() if name != graph.output or graph.kind != ATTENTION))
        for other in self.graphs:  # streams are in order each for itself
            if other is not graph and other.stream is not graph.stream and shares(other, graph):
                self.sync(other)
        call()
        graph.busy = True
        output = graph.slots[graph.output]
        assert output is not None
        self.pending = [entry for entry in self.pending if not np.may_share_memory(entry.view, output)]
        for _ in range(rounds):
            written, result = graph.compute()
            for name, cache in written.items():
                target = graph.slots[name]
                assert target is not None
                target[...] = cache.reshape(target.shape)
            if graph.kind != ATTENTION:
                output[...] = result.astype(output.dtype).reshape(output.shape)
                continue
            current = graph.lengths()[1]
            values = graph.slots[graph.caches[1]]
            assert values is not None
            bound = TOLERANCE * max(float(np.abs(values).max()), 1e-6)
            self.pending.append(Pending(graph.take(graph.output), output, result, current, bound))
            break  # rounds of it rewrite the same
        if graph.sink is not None:
            graph.real.sync()
            self.settle(output)
            graph.sink.view[...] = output.astype(graph.sink.view.dtype).reshape(graph.sink.view.shape)

    def drop_graph(self, graph: Graph, explicitly: bool) -> None:
        """The module goes; tensors of its memory stay."""
        self.settle(*graph.slots.values())
        if explicitly:
            graph.real.release()
            graph.real.release()
            with refused("StateError", "released", "UNINITIALIZED"):
                graph.real.run()
            with refused("StateError", "released", "UNINITIALIZED"):
                graph.take(graph.output)
        self.graphs.remove(graph)
        graph.real = None


def inputs(module: Any) -> int:
    """The number of a module's inputs."""
    count: int = module.get_num_inputs()
    return count


def shares(one: Graph, other: Graph) -> bool:
    """Whether two modules use any memory in common."""
    return any(
        a is not None and b is not None and np.may_share_memory(a, b)
        for a in one.slots.values()
        for b in other.slots.values()
    )
