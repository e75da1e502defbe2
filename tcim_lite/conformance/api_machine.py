"""Random sequences of calls, checked against api_model.py. Needs hypothesis, which shortens what goes wrong."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, multiple, rule

from . import under_test as rt
from .api_calls import INPUTS, WRONG, allowed, fits, slot
from .api_model import ADD, ATTENTION, CONTEXT, LARGEST, LINEAR, ROLES, Graph, Held, World
from .checks import refused
from .kit import Kit

NUMBERS = st.integers(-50, 50)
CUTS = st.lists(st.tuples(st.integers(0, 31), st.integers(1, 32)), min_size=4, max_size=4)  # start, extent of each axis
RUNS = ["run()", "run(sync=False)", "run(True)", "rounds"]
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
PORTABLE_FORMS = [name for name in FORMS if name != "a host tensor"]


def machine(kit: Kit, emulator: bool) -> type[RuleBasedStateMachine]:
    """The class for one runtime."""
    roles = [role for role in ROLES if kit.has_model(role)]

    class Calls(RuleBasedStateMachine):
        graphs = Bundle("graphs")
        tensors = Bundle("tensors")
        managers = Bundle("managers")
        streams = Bundle("streams")

        def __init__(self) -> None:
            super().__init__()
            self.world = World()
            self.rng = np.random.default_rng(0)

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

        # Managers and streams.

        @rule(target=managers)
        def make_manager(self) -> Any:
            return [rt.WeightManager(0)]

        @rule(manager=consumes(managers))
        def drop_manager(self, manager: Any) -> None:
            manager.clear()
            gc.collect(0)

        @rule(target=streams, flag=st.booleans())
        def make_stream(self, flag: bool) -> Any:
            return [rt.Stream(flag)]

        @rule(graph=graphs, stream=st.one_of(streams, st.none()) if emulator else streams)
        def set_stream(self, graph: Graph, stream: Any) -> None:
            graph.real.set_stream(stream[0] if stream else None)
            graph.stream = stream

        # Modules.

        @initialize(target=graphs, chosen=st.lists(st.sampled_from(roles), min_size=3, max_size=5))
        def begin(self, chosen: list[str]) -> Any:
            return multiple(*(self.add(role, None, []) for role in chosen))

        @rule(
            target=graphs,
            role=st.sampled_from(roles),
            manager=st.one_of(managers, st.none()),
            dummies=st.sets(st.integers(0, 4), max_size=2),
        )
        def load(self, role: str, manager: Any, dummies: set[int]) -> Any:
            if len(self.world.graphs) >= 8:
                return multiple()
            names = INPUTS[ROLES[role]]
            return self.add(role, manager, [names[index % len(names)] for index in sorted(dummies)])

        def add(self, role: str, manager: Any, dummies: list[str]) -> Graph:
            option = rt.Option(manager[0] if manager else rt.WeightManager(0))
            if dummies:
                option = option.set_dummy_tensors(dummies)
            return self.world.add_graph(role, rt.load(kit.model(role), option=option), dummies)

        @rule(graph=consumes(graphs), explicitly=st.booleans() if emulator else st.just(False))
        def drop_graph(self, graph: Graph, explicitly: bool) -> None:
            self.world.drop_graph(graph, explicitly)

        # Data in and out.

        @rule(
            graph=graphs,
            index=st.integers(0, 4),
            number=NUMBERS,
            form=st.sampled_from(list(FORMS) if emulator else PORTABLE_FORMS),
        )
        def write(self, graph: Graph, index: int, number: int, form: str) -> None:
            name = slot(graph, index, with_output=False)
            if number % 5 == 0 and name in graph.caches:
                number = 0
            self.world.write(graph, name, self.values(graph, name, number), FORMS[form])

        @rule(target=tensors, graph=graphs, index=st.integers(0, 5))
        def take(self, graph: Graph, index: int) -> Any:
            name = slot(graph, index)
            real, view = graph.take(name), graph.slots[name]
            if view is not None:
                return self.world.hold(real, view, True)
            assert tuple(real.info.shape) == tuple(graph.infos[name].shape)
            if emulator:
                with refused("StateError", "", "UNINITIALIZED"):
                    real.numpy()
                with refused("StateError", "UNINITIALIZED", "UNINITIALIZED"):
                    graph.real.set_dev_input(name, real)
            return multiple()

        @rule(graph=graphs, index=st.integers(0, 5), held=tensors, by_reference=st.booleans())
        def bind_any(self, graph: Graph, index: int, held: Held, by_reference: bool) -> None:
            self.bind(graph, slot(graph, index), held, by_reference)

        @rule(graph=graphs, index=st.integers(0, 5), choice=st.integers(0, 30), by_reference=st.booleans())
        def bind_what_fits(self, graph: Graph, index: int, choice: int, by_reference: bool) -> None:
            name = slot(graph, index)
            fitting = [held for held in self.world.held if fits(graph, name, held.view)]
            for other in self.world.graphs:
                for slot_name, view in other.slots.items():
                    if view is not None and fits(graph, name, view):
                        fitting.append(Held(other.take(slot_name), view, True))
            if fitting:
                self.bind(graph, name, fitting[choice % len(fitting)], by_reference)

        def bind(self, graph: Graph, name: str, held: Held, by_reference: bool) -> None:
            direction = "output" if name == graph.output else "input"
            if not held.on_device:
                if by_reference:
                    with refused("ValueError"):
                        getattr(graph.real, f"set_dev_{direction}")(name, held.real)
                    self.world.check_graph(graph)
                elif emulator and direction == "input" and fits(graph, name, held.view):
                    self.world.settle(held.view)
                    self.world.write(graph, name, held.view.copy(), lambda _: held.real)
            # set_output is C++; of Python it is not known.
            elif allowed(graph, name, held.view, emulator) and (by_reference or direction == "input" or emulator):
                self.world.settle(graph.slots[name], held.view)
                verb = f"set_dev_{direction}" if by_reference else f"set_{direction}"
                if not self.world.bind(graph, name, held, verb):
                    self.world.check_graph(graph)

        @rule(graph=graphs, owner=graphs, verb=st.sampled_from(["set_input", "set_dev_input"]))
        def share_caches(self, graph: Graph, owner: Graph, verb: str) -> None:
            """What every LLM program does."""
            if graph is owner or graph.kind != ATTENTION or owner.kind != ATTENTION:
                return
            for name in graph.caches:
                view = owner.slots[name]
                if view is not None and allowed(graph, name, view, emulator):
                    self.world.settle(graph.slots[name], view)
                    held = Held(owner.take(name), view, True)
                    assert self.world.bind(graph, name, held, verb) == graph.takes(name, verb)

        @rule(target=tensors, graph=graphs, dtype=st.sampled_from(FLOATS), number=st.integers(0, 2))
        def fill_after_runs(self, graph: Graph, dtype: str, number: int) -> Any:
            """set_output with a host tensor, which is a row of a larger one."""
            if not emulator:
                return multiple()
            shape = tuple(graph.infos[graph.output].shape)
            real = rt.Tensor(rt.TensorInfo((*shape, 3), dtype)).select_roi([0] * len(shape) + [number], [*shape, 1])
            held = self.world.hold(real, np.zeros((*shape, 3), dtype)[..., number : number + 1], False)
            self.world.sync(graph)
            graph.real.set_output(graph.output, real)
            graph.sink = held
            return held

        @rule(graph=graphs, number=NUMBERS, wait=st.booleans())
        def write_and_run(self, graph: Graph, number: int, wait: bool) -> None:
            """What every program does."""
            if not graph.unbound():
                for offset, name in enumerate(INPUTS[graph.kind][:3]):
                    self.world.write(graph, name, self.values(graph, name, number + offset), FORMS["as declared"])
                self.run(graph, "run(True)" if wait else "run()", 1)

        @rule(
            graph=graphs,
            form=st.sampled_from(RUNS),
            rounds=st.integers(1, 3),
        )
        def run(self, graph: Graph, form: str, rounds: int) -> None:
            if graph.unbound():
                with refused("StateError", "UNINITIALIZED", "UNINITIALIZED"):
                    graph.real.run()
                return self.world.check_graph(graph)
            self.make_legal(graph)
            call = {
                "run()": graph.real.run,
                "run(sync=False)": lambda: graph.real.run(sync=False),
                "run(True)": lambda: graph.real.run(True),
                "rounds": lambda: graph.real.run(False, rt.RunOption(rounds)),
            }[form]
            self.world.run(graph, rounds if form == "rounds" else 1, call)

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

        @rule(graph=graphs)
        def sync(self, graph: Graph) -> None:
            graph.real.sync()
            graph.busy = False

        @rule(graph=graphs, how=st.sampled_from(["", "float32", "flat"]))
        def read_output(self, graph: Graph, how: str) -> None:
            name, view = graph.output, graph.slots[graph.output]
            assert view is not None
            self.world.settle(view)
            info = graph.infos[name].ascontiguous()
            if how == "":
                found = graph.real.get_output(name)
            elif how == "float32":
                found = graph.real.get_output(name, info.astype(np.float32))
                view = view.astype(np.float32)
            else:
                if not emulator:
                    return
                found = graph.real.get_output(name, rt.TensorInfo((view.size,), view.dtype.type))
            graph.busy = False
            self.world.compare(found, view, f"get_output of {graph.role}")
            found.set_zero()  # a fresh copy: nobody else sees it

        # Tensors.

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

        # Wrong calls: refused, and nothing changes.

        @rule(graph=graphs, which=st.sampled_from(sorted(WRONG)), index=st.integers(0, 4))
        def call_wrongly(self, graph: Graph, which: str, index: int) -> None:
            name = slot(graph, index, with_output=False)
            error, call, open_elsewhere = WRONG[which]
            if open_elsewhere and not emulator:
                return
            self.world.settle(graph.slots[name])
            with refused(error):
                call(graph, name)
            self.world.check_graph(graph)

        @rule(
            graph=graphs, valid=st.sampled_from([0, -1]), current=st.sampled_from([0, -3, 1 << 20]), sync=st.booleans()
        )
        def run_with_wrong_lengths(self, graph: Graph, valid: int, current: int, sync: bool) -> None:
            if not emulator or graph.kind != ATTENTION or graph.unbound():
                return
            self.make_legal(graph)
            if np.may_share_memory(graph.slots["valid_length"], graph.slots["current_length"]):
                return
            self.world.write(graph, "valid_length", np.full(1, valid, np.int32), FORMS["as declared"])
            self.world.write(graph, "current_length", np.full(1, current, np.int32), FORMS["as declared"])
            with refused("ArgumentError", "valid_length|current_length", "INVALID_ARGUMENT"):
                graph.real.run(sync)
                graph.real.sync()
            self.world.check_graph(graph)

        def teardown(self) -> None:
            note(f"{len(self.world.graphs)} modules, {len(self.world.held)} tensors")
            self.world.check_all()

    return Calls
