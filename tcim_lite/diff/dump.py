"""Runs a package or one graph and writes inputs, outputs, taps and cache rows of every step."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import runtime as tcim
from ..errors import ArgumentError
from ..llm import Masks, Package, context_length, lanes_of, last_logits, load_pair, prompt_chunks
from ..llm.carried import carried_of, clear_carried, gives_each_state
from ..llm.ports import is_state, tokens_of
from ..llm.step_states import StepStates
from ..replay import Recording, RecordingError
from ..replay.player import Player
from .folder import Array, DumpWriter, golden_name, read_array
from .watched import Watched


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of a run of an LLM package.

    Attributes:
        prompt: Token ids for the prefill graph, at least one.
        answer: Token ids for the decode graph, one a step.
        greedy: Decode steps after those of `answer`, each with the likeliest token.
    """

    prompt: Sequence[int]
    answer: Sequence[int] = ()
    greedy: int = 0


@contextmanager
def taps_of(patterns: Sequence[str]) -> Iterator[None]:
    """Modules that are loaded inside have these taps and no others."""
    before = os.environ.get("TCIM_LITE_TAPS")
    os.environ["TCIM_LITE_TAPS"] = ",".join(patterns)
    try:
        yield
    finally:
        os.environ.pop("TCIM_LITE_TAPS")
        if before is not None:
            os.environ["TCIM_LITE_TAPS"] = before


def dump_package(package: Package, calls: Calls, writer: DumpWriter, taps: Sequence[str], only: int | None) -> None:
    """Runs prefill in chunks, then decode.

    Args:
        package: With one batch slot.
        calls: What is run.
        writer: Of the folder; closed with the tokens that were fed.
        taps: Patterns (`Option.set_taps`).
        only: The one step whose tensors are written; None for all.

    Raises:
        ArgumentError: An empty prompt, a token outside the vocabulary, more tokens than the context holds, a negative
            number of steps, no step `only`, or several batch slots.
    """
    if not calls.prompt:
        raise ArgumentError("the prompt has no token; give --prompt or --tokens")
    prefill, decode, embedding = _load(package, taps)
    states = StepStates(decode, [carried_of(prefill)]) if gives_each_state(decode) else None
    graphs = [Watched(prefill, package.prefill_path), Watched(decode, package.decode_path)]
    inputs = [graphs[0].graph.values[id_] for id_ in graphs[0].graph.inputs]
    length = inputs[0].shape[1]
    _check_calls(calls, len(embedding), context_length(prefill))
    chunks = list(prompt_chunks(embedding, list(calls.prompt), length))
    _check_only(only, len(chunks) + len(calls.answer) + calls.greedy)
    outputs: Mapping[str, Array] = {}
    fed, step = len(calls.prompt), 0

    def run(watched: Watched, rows: Array, valid: int, current: int) -> Mapping[str, Array]:
        nonlocal step
        wanted = only is None or only == step
        step += 1
        lane = lanes_of(watched.module)[0]
        return watched.run(lane.rows(watched.module, rows), valid, current, writer if wanted else None)

    for rows, valid, current in chunks:
        outputs = run(graphs[0], rows, valid, current)
    answer = list(calls.answer)
    for position in range(len(answer) + calls.greedy):
        if position == len(answer):
            logits = next(iter(outputs.values()))
            last = last_logits(logits, current)
            answer.append(int(np.argmax(last)))
        row = np.zeros((1, tokens_of(decode), embedding.shape[1]), embedding.dtype)
        row[0, 0] = embedding[answer[position]]
        current = 1
        if states is not None:
            states.bind(0, fed + position)
        outputs = run(graphs[1], row, fed + position, 1)
    writer.close(prompt=[int(token) for token in calls.prompt], answer=answer)


def _load(package: Package, taps: Sequence[str]) -> tuple[tcim.Module, tcim.Module, Array]:
    """Prefill, decode and the embedding of a package that can be dumped."""
    try:
        with taps_of(taps):
            prefill, decode = load_pair(package.prefill_path, package.decode_path, tcim.WeightManager(0))
    except tcim.TcimError:  # of a file that cannot be loaded
        raise
    except ValueError as error:
        raise ArgumentError(f"{package.folder}: {error}; or dump one .hmm with --input") from None
    try:
        Masks(prefill)  # says so of a graph that is of no language model
        if others := [name for name in lanes_of(prefill)[0].carried if not is_state(name)]:
            raise ValueError(
                f"{package.folder}: graphs that take {others[0]} are dumped of recorded calls alone; give --recording"
            )
        clear_carried(prefill)
        return prefill, decode, package.embedding_for(prefill)
    except ValueError as error:
        raise ArgumentError(str(error)) from None


def _check_only(only: int | None, steps: int) -> None:
    if only is not None and not 0 <= only < steps:
        raise ArgumentError(f"--only-step {only}: there are {steps} steps, the first is 0")


def _check_calls(calls: Calls, vocabulary: int, context: int) -> None:
    tokens = [*calls.prompt, *calls.answer]
    bad = next((token for token in tokens if not 0 <= token < vocabulary), None)
    if bad is not None:
        raise ArgumentError(f"token {bad} is outside the package's vocabulary of {vocabulary}")
    if calls.greedy < 0:
        raise ArgumentError(f"{calls.greedy} decode steps; expected 0 or more")
    if len(tokens) + calls.greedy > context:
        raise ArgumentError(
            f"{len(tokens)} tokens and {calls.greedy} steps, the context holds {context}; give fewer, or compile with "
            "a larger --context-length"
        )


def dump_graph(path: Path, inputs: Mapping[str, Path], writer: DumpWriter, taps: Sequence[str]) -> None:
    """Runs one graph once, with states of zeros where no file gives them.

    Args:
        path: A `.hmm`.
        inputs: By name of an input, a `.npy` file; or one folder under "" that has them under golden names.
        writer: Of the folder; closed.
        taps: Patterns (`Option.set_taps`).

    Raises:
        ArgumentError: An input that is neither given nor a state, or a file that is no array.
    """
    with taps_of(taps):
        watched = Watched(tcim.load(path, tcim.Option(0)), path)
    unknown = inputs.keys() - {"", *(watched.graph.values[id_].name for id_ in watched.graph.inputs)}
    if unknown:
        raise ArgumentError(f"{path}: no input is named {', '.join(sorted(unknown))}; `tcim-lite inspect {path}` lists "
                            "them")  # fmt: skip
    values = {}
    missing = []
    for value in (watched.graph.values[id_] for id_ in watched.graph.inputs):
        file = inputs.get(value.name) or _found(inputs.get(""), path.stem, value.name)
        if file is not None:
            values[value.name] = _loaded(file)
        elif value.kind != "state":
            missing.append(value.name)
    if missing:
        raise ArgumentError(f"{path}: no file for the inputs {', '.join(missing)}; give --input NAME=FILE.npy or a "
                            "folder with their golden files")  # fmt: skip
    kinds = {value.name: value.kind for value in watched.graph.values}
    watched.given = {name: array for name, array in values.items() if kinds[name] == "state"}
    watched.run(values, None, None, writer)
    writer.close()


def _found(folder: Path | None, graph: str, name: str) -> Path | None:
    if folder is None:
        return None
    names = (f"hmquant_{golden_name(graph)}_{golden_name(name)}_input.npy", f"{golden_name(name)}.npy")
    return next((folder / file for file in names if (folder / file).is_file()), None)


def _loaded(file: Path) -> Array:
    try:
        return read_array(file)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{file}: is no .npy file of numbers ({error})") from None


def dump_recording(recording: Path, folder: Path, writer: DumpWriter, taps: Sequence[str], only: int | None) -> None:
    """Makes the calls of a recording (docs/recording.md) and writes a step for every `run`, with the states before it.

    Args:
        recording: With the values that the host gave.
        folder: Has the models under their recorded names.
        writer: Of the folder; closed.
        taps: Patterns (`Option.set_taps`).
        only: The one step whose tensors are written; None for all.

    Raises:
        ArgumentError: The recording is damaged, lacks values, or names models that are not there; it has no run, or no
            step `only`.
    """
    try:
        recorded = Recording(recording)
        player = Player(recorded, tcim, folder)
        watched: dict[int, Watched] = {}
        runs = 0
        for index, record in enumerate(recorded.records):
            if "call" not in record or "error" in record or not player.knows(record):
                continue
            run = watched.get(record.get("module", 0)) if record["call"] == "Module.run" else None
            if run is not None and only in (None, runs):
                run.keep_inputs()
            with taps_of(taps):
                player.call(index, record)
            if record["call"] == "Module.load":
                path = player.model_file(record, record["load"])
                watched[record["module"]] = Watched(player.modules[record["module"]], path)
            if run is not None:
                if only in (None, runs):
                    run.module.sync()
                    run.write(writer)
                runs += 1
    except RecordingError as error:
        raise ArgumentError(str(error)) from None
    if not runs:
        raise ArgumentError(f"{recording}: no model of it runs, so there is nothing to write")
    _check_only(only, runs)
    writer.close()


def environment() -> dict[str, Any]:
    """What decides on results besides the package: the emulator's variables and its version."""
    names = sorted(name for name in os.environ if name.startswith(("TCIM_", "HOUMO_")) and "KEY" not in name)
    return {name: os.environ[name] for name in names}
