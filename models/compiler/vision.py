"""The vision graphs of a package."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tcim_lite.hmm import WeightEntry

from ..checkpoints.quantized.table import decoded
from ..common.errors import CompileError
from ..common.profiles import Profile, profile_for
from ..model_config import ModelConfig
from ..tower_kinds.asked import DEFAULT, Asked
from ..weights.spec import CheckpointTensors, RandomTensors, TensorSource
from .graph_files import GraphFile
from .options import CompileOptions
from .parts import Beside, OtherGraphs, Part, SecondName
from .source import Source

_FORMATS = ("w8a8h1_sefp", "float16", "float32")


def tower_profile(options: CompileOptions) -> Profile:
    """Returns what `--vision-quant` says, or usually is.

    Raises:
        CompileError: Towers have no such weights.
    """
    quant = options.vision_quant or (options.quant if options.quant in _FORMATS[1:] else _FORMATS[0])
    if quant not in _FORMATS:
        raise CompileError(f"--vision-quant {quant} is not for vision towers; choose from {', '.join(_FORMATS)}")
    return profile_for(quant)


def has_tower(checkpoint: Path, raw: Mapping[str, Any], model: ModelConfig) -> bool:
    """Whether `--vision` alone makes graphs of a checkpoint with this `config.json` and language model."""
    tower = model.family.vision
    if tower is None:
        return False
    try:
        plan = tower.plan(Asked(DEFAULT, False), raw, model)
        CheckpointTensors(tower.store(checkpoint)).check([*plan.weights(profile_for(_FORMATS[0])), *plan.tables()])
    except CompileError:  # as a language model alone it may be used all the same
        return False
    return True


def prepare_tower(options: CompileOptions, name: str, source: Source, model: ModelConfig) -> list[Part]:
    """Returns the tower that `--vision` asks for, if it does.

    Raises:
        CompileError: There is none, or it or what is asked for does not fit.
    """
    if options.vision is None:
        for option, given in (("--vision-quant", options.vision_quant), ("--vision-mask", options.vision_mask)):
            if given:
                raise CompileError(f"{option} is for the graph of a vision tower; give --vision as well")
        return []
    family = model.family
    if family.vision is None:
        raise CompileError(f"--vision: {family.title} has no vision tower that this compiler knows; leave it out")
    profile = tower_profile(options)
    asked = Asked(options.vision or DEFAULT, options.vision_mask)
    plan = family.vision.plan(asked, source.config, model)
    weights = plan.weights(profile)
    tensors: TensorSource = RandomTensors(options.seed)
    if source.tensors is not None:
        tensors = CheckpointTensors(decoded(family.vision.store(source.path), source.config))
    tensors.check([*weights, *plan.tables()])
    common = {"model_type": family.model_type, "quant": profile.quant}

    def file(end: str) -> str:
        return f"{name}_visual{end}.hmm"

    def graphs(entries: Sequence[WeightEntry]) -> Iterator[GraphFile]:
        for end in plan.ends:
            message = {**common, **plan.message(end)}
            yield GraphFile(file(end), [plan.graph(end, profile, entries)], message)

    visual = OtherGraphs(
        stem=f"{name}_visual",
        weights=weights,
        tensors=tensors,
        constants=lambda: plan.constants(tensors, profile.tensor_dtype),
        graphs=graphs,
        dtype=profile.tensor_dtype,
        self_contained=options.self_contained,
        what="of the vision tower's weights",
    )
    others = ((end, plan.other_end(end)) for end in plan.ends)
    names = (SecondName(Path(file(end)), Path(file(other))) for end, other in others if other is not None)
    lists = (Beside(path, json.dumps(listed, indent=4).encode) for path, listed in plan.lists().items())
    return [visual, *names, *lists]
