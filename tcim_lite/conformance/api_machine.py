"""Random sequences of calls, checked against api_model.py. Needs hypothesis, which shortens what goes wrong."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, consumes, multiple, rule

from . import under_test as rt
from .api_calls import INPUTS, WRONG, allowed, fits, slot
from .api_machine_base import ANY_ROLE, FLOATS, FORMS, NOT_PORTABLE, NUMBERS, Calls, graphs, managers, streams, tensors
from .api_machine_tensors import TensorCalls
from .api_model import ATTENTION, ROLES, Graph, Held
from .checks import refused
from .kit import Kit

RUNS = ["run()", "run(sync=False)", "run(True)", "rounds"]


class ModuleCalls(Calls):
    """Managers, streams and modules; data in and out, runs, and wrong calls."""

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

    @rule(graph=graphs, stream=st.one_of(streams, st.none()))
    def set_stream(self, graph: Graph, stream: Any) -> None:
        if stream is None and not self.emulator:
            return
        graph.real.set_stream(stream[0] if stream else None)
        graph.stream = stream

    @rule(
        target=graphs,
        number=ANY_ROLE,
        manager=st.one_of(managers, st.none()),
        dummies=st.sets(st.integers(0, 4), max_size=2),
    )
    def load(self, number: int, manager: Any, dummies: set[int]) -> Any:
        if len(self.world.graphs) >= 8:
            return multiple()
        role = self.role(number)
        names = INPUTS[ROLES[role]]
        return self.add(role, manager, [names[index % len(names)] for index in sorted(dummies)])

    @rule(graph=consumes(graphs), explicitly=st.booleans())
    def drop_graph(self, graph: Graph, explicitly: bool) -> None:
        self.world.drop_graph(graph, explicitly and self.emulator)

    @rule(
        graph=graphs,
        index=st.integers(0, 4),
        number=NUMBERS,
        form=st.sampled_from(list(FORMS)),
    )
    def write(self, graph: Graph, index: int, number: int, form: str) -> None:
        if form in NOT_PORTABLE and not self.emulator:
            form = "as declared"
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
        if self.emulator:
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
            elif self.emulator and direction == "input" and fits(graph, name, held.view):
                self.world.settle(held.view)
                self.world.write(graph, name, held.view.copy(), lambda _: held.real)
        # set_output is C++; of Python it is not known.
        elif allowed(graph, name, held.view, self.emulator) and (by_reference or direction == "input" or self.emulator):
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
            if view is not None and allowed(graph, name, view, self.emulator):
                self.world.settle(graph.slots[name], view)
                held = Held(owner.take(name), view, True)
                assert self.world.bind(graph, name, held, verb) == graph.takes(name, verb)

    @rule(target=tensors, graph=graphs, dtype=st.sampled_from(FLOATS), number=st.integers(0, 2))
    def fill_after_runs(self, graph: Graph, dtype: str, number: int) -> Any:
        """set_output with a host tensor, which is a row of a larger one."""
        if not self.emulator:
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
            if not self.emulator:
                return
            found = graph.real.get_output(name, rt.TensorInfo((view.size,), view.dtype.type))
        graph.busy = False
        self.world.compare(found, view, f"get_output of {graph.role}")
        found.set_zero()  # a fresh copy: nobody else sees it

    # Wrong calls: refused, and nothing changes.

    @rule(graph=graphs, which=st.sampled_from(sorted(WRONG)), index=st.integers(0, 4))
    def call_wrongly(self, graph: Graph, which: str, index: int) -> None:
        name = slot(graph, index, with_output=False)
        error, call, open_elsewhere = WRONG[which]
        if open_elsewhere and not self.emulator:
            return
        self.world.settle(graph.slots[name])
        with refused(error):
            call(graph, name)
        self.world.check_graph(graph)

    @rule(graph=graphs, valid=st.sampled_from([0, -1]), current=st.sampled_from([0, -3, 1 << 20]), sync=st.booleans())
    def run_with_wrong_lengths(self, graph: Graph, valid: int, current: int, sync: bool) -> None:
        if not self.emulator or graph.kind != ATTENTION or graph.unbound():
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


def machine(kit: Kit, emulator: bool) -> type[RuleBasedStateMachine]:
    """The class for one runtime."""
    return type("Calls", (ModuleCalls, TensorCalls), {"kit": kit, "emulator": emulator})
