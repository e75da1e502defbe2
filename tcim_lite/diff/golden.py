"""Runs a package on golden files and compares what it returns, by the vendor's rule (spec models.md, section C).

Files are `hmquant_<graph>_<tensor>_input.npy` and `_output.npy`, in a folder or in its `step_0`, `step_1`, ... An
output passes if it is equal, or if its cosine reaches a limit. A missing file is a failure, and so is one too many.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import runtime as tcim
from ..errors import ArgumentError, TcimError
from ..hmm import Value, read
from ..llm import load_pair
from .folder import Array, check_names, golden_name, read_array

LIMIT = 0.98
_LARGEST = 65504.0  # of float16, for infinity
_STEP = re.compile(r"step_(\d+)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one output, or of a file.

    Attributes:
        step: The folder of the step; "" for files in the folder itself.
        graph: The name of the `.hmm`, "" where the verdict is about no graph.
        tensor: The name of the tensor or of the file.
        cosine: With the golden array; None where nothing could be compared.
        passed: Whether it is as it should be.
        reason: Why not; "equal" or "" for what passed.
    """

    step: str
    graph: str
    tensor: str
    cosine: float | None
    passed: bool
    reason: str


def check(package: Path, folder: Path, limit: float = LIMIT, graphs: Sequence[str] = ()) -> list[Verdict]:
    """Runs every step of a folder.

    Caches without a file go on from the step before, as in the host program that made the files; an LLM's prefill and
    decode graph share them. Where the step before was not run here, a valid length above 0 needs their files.

    Args:
        package: A package folder, or one `.hmm`.
        folder: With the golden files, with `step_N`, or with a folder `golden` that has one of these.
        limit: The lowest cosine that passes.
        graphs: Names of the `.hmm` files to check, without the suffix; empty: all of the package.

    Returns:
        At least one verdict.

    Raises:
        ArgumentError: There is no such package, graph or folder, two tensors have one golden name, or the package's
            graphs cannot share their caches, as those of a batch.
        TcimError: A model does not load.
    """
    if not folder.is_dir():
        raise ArgumentError(f"{folder}: is no folder of golden files")
    watched = [_Checked(module, path, limit) for module, path in _modules(package, graphs)]
    known = {file for graph in watched for file in graph.files}
    chosen = bool(graphs) or package.is_file()
    others = _other_prefixes(package, watched)
    prefixes = {graph.prefix for graph in watched} if chosen else {"hmquant_", *others}
    verdicts: list[Verdict] = []
    goes_on = False
    for step, path in _steps(folder):
        npy = [file for file in path.iterdir() if file.suffix == ".npy"]
        files = {file.name: file for file in npy if file.name in known or _is_of(file.name, prefixes, others)}
        used = [graph for graph in watched if not graph.files.isdisjoint(files)]
        for graph in used:
            verdicts += graph.run(step, files, goes_on)
        goes_on = bool(used) and all(graph.ran for graph in used)
        if not used and not any(file.name.startswith(others) for file in npy):
            verdicts.append(Verdict(step, "", path.name, None, False, "has no golden file of the package"))
        verdicts += [
            Verdict(step, "", file, None, False, "is of no tensor of the package")
            for file in sorted(files.keys() - known)
        ]
    verdicts += [
        Verdict("", graph.name, "", None, False, f"has no golden files ({graph.prefix}*_input.npy, *_output.npy)")
        for graph in watched
        if not graph.runs
    ]
    return verdicts


def compare(golden: Array, got: Array, limit: float) -> tuple[float | None, bool, str]:
    """The cosine of two arrays, whether it passes, and what there is to say.

    Infinities count as the largest float16; NaN and other shapes fail.
    """
    expected = fitted(golden, got.shape)
    if expected is None:
        return None, False, f"has the shape {list(got.shape)}, the golden file {list(golden.shape)}"
    if np.isnan(got.astype(np.float64)).any() or np.isnan(expected.astype(np.float64)).any():
        where = "the result" if np.isnan(got.astype(np.float64)).any() else "the golden file"
        return None, False, f"{where} has a NaN"
    if np.array_equal(expected, got):
        return 1.0, True, "equal"
    a, b = (_numbers(array) for array in (expected, got))
    norms = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    cosine = float(a @ b) / norms if norms else 0.0
    return cosine, cosine >= limit, "" if cosine >= limit else f"the cosine is below {limit}"


def fitted(array: Array, shape: Sequence[int]) -> Array | None:
    """A golden array for a declared shape: as it is, a scalar as [1], or repeated along axis 0 for a larger batch."""
    wanted = tuple(shape)
    if array.shape == wanted:
        return array
    if array.ndim == 0 and wanted == (1,):
        return array.reshape(1)
    same = array.ndim == len(wanted) and array.ndim > 0 and array.shape[1:] == wanted[1:]
    if same and array.shape[0] and wanted[0] % array.shape[0] == 0:
        return np.concatenate([array] * (wanted[0] // array.shape[0]))
    return None


class _Checked:
    """A graph and the names of its golden files."""

    def __init__(self, module: tcim.Module, path: Path, limit: float) -> None:
        graph = read(path).graph
        assert graph is not None, path
        self.module, self.name, self.limit = module, path.stem, limit
        self.runs, self.ran = 0, False  # steps of it; whether the last one could be run
        self.prefix = f"hmquant_{golden_name(path.stem)}_"
        self._inputs = [graph.values[id_] for id_ in graph.inputs]
        self._outputs = [graph.values[id_] for id_ in graph.outputs]
        for values in (self._inputs, self._outputs):
            check_names(value.name for value in values)
        self.files = {file for value in self._inputs for file in self._files(value, "input")}
        self.files |= {file for value in self._outputs for file in self._files(value, "output")}

    def run(self, step: str, files: Mapping[str, Path], goes_on: bool) -> list[Verdict]:
        """Feeds the inputs of a step and judges the outputs; if it `goes_on`, the caches hold the tokens before it."""
        self.runs += 1
        failures: list[Verdict] = []
        for value in self._inputs:
            file = _found(self._files(value, "input"), files)
            if file is None:
                is_there = value.kind == "state" and (goes_on or not self._has_past(files))
                problem = "" if is_there else f"{self._files(value, 'input')[0]} is missing"
            else:
                problem = self._set(value, file)
            if problem:
                failures.append(Verdict(step, self.name, value.name, None, False, problem))
        if not failures:
            try:
                self.module.run(sync=True)
            except TcimError as error:
                failures.append(Verdict(step, self.name, "", None, False, f"does not run: {error}"))
        self.ran = not failures
        return [*failures, *(self._judged(step, value, files, not failures) for value in self._outputs)]

    def _files(self, value: Value, end: str) -> list[str]:
        """The names of a tensor's file: by its own name, and by its aliases."""
        return [f"{self.prefix}{golden_name(name)}_{end}.npy" for name in (value.name, *value.aliases)]

    def _has_past(self, files: Mapping[str, Path]) -> bool:
        """Whether there are tokens before the step: a valid length above 0."""
        for value in self._inputs:
            if (value.role.name if value.role else value.name) == "valid_length":
                file = _found(self._files(value, "input"), files)
                if file is not None and np.any(_loaded(file) != 0):
                    return True
        return False

    def _set(self, value: Value, file: Path) -> str:
        """Feeds an input, in its declared dtype; returns what is wrong."""
        info = self.module.get_input_info(value.name)
        shape, dtype = tuple(info.shape), np.dtype(info.dtype)
        array = _loaded(file)
        if dtype == np.uint8 and len(value.shape) == 2 and len(shape) == 4:
            shape = tuple(value.shape)  # an image's bytes
            if array.shape != shape:
                array = _image(array, shape[1])
        array_fitted = fitted(array, shape)
        if array_fitted is None:
            return f"{file.name} has the shape {list(array.shape)}, the input {list(shape)}"
        with np.errstate(over="ignore"):
            cast = array_fitted.astype(dtype)
        if dtype.kind in "iu" and not np.array_equal(cast, array_fitted):
            return f"{file.name} has numbers that {dtype.name} does not hold"
        try:
            self.module.set_input(value.name, np.ascontiguousarray(cast))
        except TcimError as error:
            return f"{file.name}: {error}"
        return ""

    def _judged(self, step: str, value: Value, files: Mapping[str, Path], ran: bool) -> Verdict:
        file = _found(self._files(value, "output"), files)
        if file is None:
            reason = f"{self._files(value, 'output')[0]} is missing"
        elif not ran:
            reason = "was not computed"
        else:
            result = self.module.get_output(value.name).numpy()
            return Verdict(step, self.name, value.name, *compare(_loaded(file), result, self.limit))
        return Verdict(step, self.name, value.name, None, False, reason)


def _steps(folder: Path) -> list[tuple[str, Path]]:
    """The folders with files, in order, with the names of steps; "" for files in the folder itself.

    Raises:
        ArgumentError: A step between two others is not there, or there is no file at all.
    """
    steps = {
        int(match[1]): path for path in folder.iterdir() if (match := _STEP.fullmatch(path.name)) and path.is_dir()
    }
    if steps:
        if missing := [number for number in range(max(steps)) if number not in steps]:
            raise ArgumentError(f"{folder}: step_{missing[0]} is missing, there are steps up to step_{max(steps)}")
        return [(steps[number].name, steps[number]) for number in sorted(steps)]
    if any(folder.glob("hmquant_*.npy")):
        return [("", folder)]
    if (folder / "golden").is_dir():
        return _steps(folder / "golden")
    raise ArgumentError(f"{folder}: has no golden files (hmquant_*_input.npy, hmquant_*_output.npy) and no step_0")


def _modules(package: Path, graphs: Sequence[str]) -> list[tuple[tcim.Module, Path]]:
    """The graphs of a package, loaded. An LLM's prefill and decode graph share their caches."""
    paths = {path.stem: path for path in ([package] if package.is_file() else sorted(package.glob("*.hmm")))}
    if not paths:
        raise ArgumentError(f"{package}: is no package; expected a .hmm, or a folder with some")
    if unknown := [name for name in graphs if name not in paths]:
        raise ArgumentError(f"{package}: has no graph {unknown[0]!r:.100}; it has {', '.join(paths)}")
    wanted = [paths[name] for name in graphs] or list(paths.values())
    loaded: dict[Path, tcim.Module] = {}
    for pair in _pairs(package, wanted):
        try:
            modules = load_pair(*pair, tcim.WeightManager(0))
        except TcimError:
            raise
        except ValueError as error:
            raise ArgumentError(f"{package}: {error}; or check one graph with --graph {pair[0].stem}") from None
        loaded.update(zip(pair, modules, strict=True))
    return [(loaded.get(path) or tcim.load(path, tcim.Option(0)), path) for path in wanted]


def _pairs(package: Path, wanted: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    for path in wanted:
        name = path.stem.removesuffix("_prefill")
        if package.is_dir() and name != path.stem and package / f"{name}_decode.hmm" in wanted:
            yield path, package / f"{name}_decode.hmm"


def _other_prefixes(package: Path, watched: Sequence[_Checked]) -> tuple[str, ...]:
    """Of the files of graphs beside those that are checked."""
    folder = package.parent if package.is_file() else package
    return tuple({f"hmquant_{golden_name(path.stem)}_" for path in folder.glob("*.hmm")} - {g.prefix for g in watched})


def _is_of(file: str, prefixes: Collection[str], others: Sequence[str]) -> bool:
    """Whether a file is of the graphs with these prefixes: of a graph whose name begins like another's, the longer."""
    longest = max((prefix for prefix in (*others, *prefixes) if file.startswith(prefix)), key=len, default="")
    return longest in prefixes


def _found(names: Sequence[str], files: Mapping[str, Path]) -> Path | None:
    return next((files[name] for name in names if name in files), None)


def _loaded(file: Path) -> Array:
    try:
        return read_array(file)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{file}: is no .npy file of numbers ({error})") from None


def _image(array: Array, nbytes: int) -> Array:
    """A YUV image as the vendor stores it, in an array of the size of the network's input: cut to its bytes."""
    rows = array.reshape(array.shape[0], -1) if array.ndim > 1 else array.reshape(1, -1)
    return rows[:, :nbytes] if rows.shape[1] > nbytes else array


def _numbers(array: Array) -> Array:
    flat = array.astype(np.float64).reshape(-1)
    return np.asarray(np.nan_to_num(flat, nan=np.nan, posinf=_LARGEST, neginf=-_LARGEST))
