"""One of two sides: a package, how it is run, and what it computed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..errors import TcimError
from ..llm import Package
from ..own_process import module_command
from .cut import GIVEN, Model, cut, write_cut
from .dump import Calls
from .folder import Array, Dump, check_names, golden_name

_LONGEST = 6 * 3600.0  # seconds of one dump


@dataclass
class Side:
    """A package, or one graph, that is run in processes of its own.

    Attributes:
        runs: The package, or the `.hmm`.
        environment: Variables of its processes besides those of this one. PYTHONPATH may name another build.
        folder: Where its dumps go.
    """

    runs: Package | Path
    environment: Mapping[str, str]
    folder: Path
    models: dict[Path, Model] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """Where its processes run models."""
        return self.environment.get("TCIM_LITE_DEVICE") or os.environ.get("TCIM_LITE_DEVICE") or "cpu"

    def model(self, graph: str) -> Model:
        """The model of a step's graph, in this package."""
        if isinstance(self.runs, Path):
            path = self.runs
        else:
            # Packages may have different names: then a step is of one stage or the other.
            stage = self.runs.prefill_path if "prefill" in graph else self.runs.decode_path
            path = same if (same := self.runs.folder / f"{graph}.hmm").is_file() else stage
        if path not in self.models:
            self.models[path] = Model(path)
        return self.models[path]

    def dump(
        self, name: str, calls: Calls | Path | Sequence[str], taps: Sequence[str], only: int | None = None
    ) -> Dump:
        """Runs the package on tokens or as a recording says, or the graph on the values of --input."""
        if isinstance(self.runs, Path):
            assert not isinstance(calls, (Calls, Path))
            return self._run(name, self.runs, taps, [part for given in calls for part in ("--input", given)])
        step = [] if only is None else ["--only-step", str(only)]
        if isinstance(calls, Path):
            return self._run(name, self.runs.folder, taps, ["--recording", str(calls), *step])
        assert isinstance(calls, Calls)
        options = ["--tokens", _ids(calls.prompt), "--answer", _ids(calls.answer), "--steps", str(calls.greedy)]
        return self._run(name, self.runs.folder, taps, [*options, "--name", self.runs.name, *step])

    def run_graph(self, name: str, path: Path, inputs: Path, taps: Sequence[str]) -> Dump:
        """Runs one graph on a folder of golden inputs."""
        return self._run(name, path, taps, ["--input", str(inputs)])

    def _run(self, name: str, what: Path, taps: Sequence[str], options: Sequence[str]) -> Dump:
        target = self.folder / name
        command = ["dump", str(what), "-o", str(target), "--taps", ",".join(taps), *options]
        done = subprocess.run(
            [*module_command("tcim_lite"), *command],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=_LONGEST,
            check=False,
        )
        if done.returncode != 0:
            said = ["tcim-lite", *command]
            settings = [f"{key}={value}" for key, value in self.environment.items()]
            told = done.stderr.strip().splitlines()
            raise TcimError(f"{' '.join(settings + said)}: failed with {told[-1] if told else done.returncode}")
        return Dump.open(target)


def _ids(tokens: Sequence[int]) -> str:
    return ",".join(map(str, tokens))


def run_cut(
    side: Side, right: Dump, step: int, ops: Sequence[int], given: Collection[str], results: Collection[str], name: str
) -> Dump:
    """Runs some ops of a side's graph on the values that are right; returns a dump of one step.

    Args:
        side: Whose graph and runtime.
        right: Holds the values of `given` at that step, and the cache rows of all steps before.
        step: Of the run.
        ops: Indices, in the graph of that step.
        given: Values that the ops read from `right`.
        results: Values to compare.
        name: Of the files: `NAME.hmm` and the folder `NAME` with its inputs, in the side's folder.
    """
    model = side.model(right.steps[step].graph)
    graph = cut(model, ops, given, results, name)
    path, inputs = side.folder / f"{name}.hmm", side.folder / name
    side.folder.mkdir(parents=True, exist_ok=True)
    write_cut(model, graph, path, contained=False)
    write_inputs(model, [graph.values[id_].name for id_ in graph.inputs], right, step, inputs, name)
    outputs = {graph.values[id_].name for id_ in graph.outputs}
    made = {graph.values[id_].name for op in graph.ops if op.kind != "KVcache" for id_ in op.outputs}
    return side.run_graph(f"{name}.dump", path, inputs, sorted((set(results) & made) - outputs))


def write_inputs(model: Model, names: Sequence[str], right: Dump, step: int, folder: Path, graph: str) -> None:
    """Writes the inputs of a cut as golden files: values that are right, and caches as they were before the step."""
    check_names(names)
    folder.mkdir(parents=True, exist_ok=True)
    caches = {
        model.graph.values[state].name: model.graph.values[out].name
        for op in model.graph.ops
        if op.kind == "KVcache"
        for out, state in zip(op.outputs, op.inputs[1::3], strict=True)
    }
    for name in names:
        if name in caches:
            array = cache_before(right, step, name, caches[name], model)
        else:
            array = right.array(step, name.removesuffix(GIVEN))
        np.save(folder / f"hmquant_{golden_name(graph)}_{golden_name(name)}_input.npy", array)


def cache_before(right: Dump, step: int, name: str, updated: str, model: Model) -> Array:
    """A cache before a step: what it began with, and the rows that the steps before wrote."""
    if name in right.steps[step].tensors:  # one graph, which was given the state
        return right.array(step, name)
    cache = np.zeros(tuple(model.value(name).shape), model.value(name).dtype)
    for earlier in range(step):
        at = right.steps[earlier]
        rows = right.array(earlier, updated)
        cache[:, :, at.valid : at.valid + rows.shape[2]] = rows
    return cache
