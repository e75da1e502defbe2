"""A module whose tensors become steps of a dump."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from .. import runtime as tcim
from ..hmm import read
from ..llm import Masks, lanes_of
from ..llm.ports import positions_of_text
from .folder import Array, DumpWriter, check_names

# Roles of the positions of tokens: one, or three, which are equal for text.
POSITIONS = ("position_ids", "time_position_ids", "height_position_ids", "width_position_ids", "axes_position_ids")


class Watched:
    """A module and what its file says about it."""

    def __init__(self, module: tcim.Module, path: Path) -> None:
        graph = read(path).graph
        assert graph is not None, path
        self.module, self.path, self.graph = module, path, graph
        self.given: Mapping[str, Array] = {}  # states before the run, and inputs that it may write over
        self.asked: dict[str, Array] = {}  # inputs that `run` gave
        self.roles: dict[str, str] = {}  # the first input of each role, or of the name where the file has no roles
        taps = [tap.removeprefix("tap:") for tap in module.taps()]
        caches = [graph.values[id_].name for op in graph.ops if op.kind == "KVcache" for id_ in op.outputs]
        check_names(taps + caches)
        for ids in (graph.inputs, graph.outputs):
            check_names(graph.values[id_].name for id_ in ids)
        for value in (graph.values[id_] for id_ in graph.inputs):
            self.roles.setdefault(value.role.name if value.role else value.name, value.name)
        if "embeddings" not in self.roles:
            self.roles["embeddings"] = graph.values[graph.inputs[0]].name

    def run(
        self, inputs: Mapping[str, Array], valid: int | None, current: int | None, writer: DumpWriter | None
    ) -> dict[str, Array]:
        """Sets inputs and lengths, runs, writes if asked to; returns the outputs."""
        module = self.module
        self.asked = dict(inputs)
        lengths = {"valid_length": valid, "current_length": current}
        for role, length in lengths.items():
            if length is not None:
                self.asked[self.roles[role]] = np.array([length], np.int32)
        if valid is not None:
            for name in (self.roles[role] for role in POSITIONS if role in self.roles):
                self.asked[name] = positions_of_text(valid, module.get_input_info(name).shape)
        lanes = []
        if valid is not None and current is not None:
            Masks(module).set(valid, current)
            lanes = lanes_of(module)
            for lane in lanes:
                lane.clear_deepstack(module)
                lane.set_linear_mask(module, current)
        for name, array in self.asked.items():
            module.set_input(name, array)
        if states := [name for lane in lanes for name in lane.carried]:
            self.given = {name: module.get_dev_input(name).numpy() for name in states}  # outputs lie over them
        module.run(sync=True)
        if writer is not None:
            self.write(writer)
        return self._outputs()

    def keep_inputs(self) -> None:
        """Remembers inputs and states as they are before a run: an output may lie over any of them."""
        self.module.sync()
        names = [self.graph.values[id_].name for id_ in self.graph.inputs]
        self.given = {name: self.module.get_dev_input(name).numpy() for name in names}

    def write(self, writer: DumpWriter) -> None:
        """Writes the tensors of the last run as a step."""
        writer.add_step(
            self.path.stem, self.path.resolve(), self._length("valid_length"), self._length("current_length")
        )
        self._write(writer, self._outputs())

    def _outputs(self) -> dict[str, Array]:
        names = [self.graph.values[id_].name for id_ in self.graph.outputs]
        return {name: self._output(name) for name in names}

    def _write(self, writer: DumpWriter, outputs: Mapping[str, Array]) -> None:
        graph = self.graph
        for value in (graph.values[id_] for id_ in graph.inputs):
            if value.kind == "input":
                held = self.given.get(value.name)
                if held is None:
                    held = self.module.get_dev_input(value.name).numpy()
                writer.add("input", value.name, held)
                given = self.asked.get(value.name)
                if given is not None and given.dtype == held.dtype and given.tobytes() != held.tobytes():
                    writer.steps[-1].altered.append(value.name)
            elif value.name in self.given:
                writer.add("state", value.name, self.given[value.name])
        taps = {name.removeprefix("tap:") for name in self.module.taps()}
        for op in graph.ops:
            for index, id_ in enumerate(op.outputs):
                name = graph.values[id_].name
                if op.kind == "KVcache":
                    writer.add("cache", name, self._written_rows(op.inputs[1 + 3 * index : 4 + 3 * index]))
                elif name in outputs:
                    writer.add("output", name, outputs[name])
                elif name in taps:
                    writer.add("value", name, self._output(f"tap:{name}"))

    def _written_rows(self, operands: Sequence[int]) -> Array:
        """[1, heads, current, D]: rows [valid, valid + current) of a cache."""
        cache, valid, current = (self.graph.values[id_].name for id_ in operands)
        begin, count = (int(self.module.get_dev_input(name).numpy()[0]) for name in (valid, current))
        tensor = self.module.get_dev_input(cache)
        _, heads, context, width = tensor.shape
        rows = tensor.select_roi([0, 0, begin, 0], [1, heads, min(count, context - begin), width])
        return rows.to_host(True).numpy()

    def _length(self, role: str) -> int:
        name = self.roles.get(role)
        if name is None:
            return 0
        given = self.asked.get(name)
        return int((self.module.get_dev_input(name).numpy() if given is None else given).reshape(-1)[0])

    def _output(self, name: str) -> Array:
        return self.module.get_output(name).numpy()
