"""The vision graphs of a package: their weights, and the files they are written to."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..common.errors import CompileError
from ..common.profiles import Profile, profile_for
from ..common.progress import Progress
from ..common.weight_spec import CheckpointTensors, LinearSpec, RandomTensors, TensorSource, VectorSpec
from ..model_config import ModelConfig
from ..tower_kinds.asked import DEFAULT, Asked
from ..tower_kinds.kind import TowerPlan
from .graph_files import GraphFile, write_graph_files
from .options import CompileOptions
from .source import Source
from .weight_files import write_encoder_weights

_FORMATS = ("w8a8h1_sefp", "float16", "float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTower:
    """A tower that is ready to be written.

    Attributes:
        name: Prefix of its files.
        model_type: Of the family.
        plan: Its graphs.
        profile: Dtypes and formats.
        weights: Those that come from tensors, but the tables.
        tensors: Where the numbers come from.
        self_contained: The graphs hold the weights.
    """

    name: str
    model_type: str
    plan: TowerPlan
    profile: Profile
    weights: Sequence[LinearSpec | VectorSpec]
    tensors: TensorSource
    self_contained: bool

    @property
    def elements(self) -> int:
        """Numbers to read, for a progress bar."""
        return sum(math.prod(spec.shape) for spec in self.weights if isinstance(spec, LinearSpec))


def prepare_tower(options: CompileOptions, name: str, source: Source, model: ModelConfig) -> PreparedTower | None:
    """Returns the tower that `--vision` asks for; None without it.

    Raises:
        CompileError: There is none, or it or what is asked for does not fit.
    """
    if options.vision is None:
        for option, given in (("--vision-quant", options.vision_quant), ("--vision-mask", options.vision_mask)):
            if given:
                raise CompileError(f"{option} is for the graph of a vision tower; give --vision as well")
        return None
    family = model.family
    if family.vision is None:
        raise CompileError(f"--vision: {family.title} has no vision tower that this compiler knows; leave it out")
    quant = options.vision_quant or (options.quant if options.quant in _FORMATS[1:] else _FORMATS[0])
    if quant not in _FORMATS:
        raise CompileError(f"--vision-quant {quant} is not for vision towers; choose from {', '.join(_FORMATS)}")
    profile = profile_for(quant)
    asked = Asked(options.vision or DEFAULT, options.vision_mask)
    plan = family.vision.plan(asked, source.config, model)
    weights = plan.weights(profile)
    tensors: TensorSource = RandomTensors(options.seed)
    if source.tensors is not None:
        tensors = CheckpointTensors(family.vision.store(source.path))
    tensors.check([*weights, *plan.tables()])
    return PreparedTower(
        name=name,
        model_type=family.model_type,
        plan=plan,
        profile=profile,
        weights=weights,
        tensors=tensors,
        self_contained=options.self_contained,
    )


def write_tower(folder: Path, tower: PreparedTower, workers: ThreadPoolExecutor, bar: Progress) -> None:
    """Writes the weights and a file for every graph."""
    plan, profile = tower.plan, tower.profile
    entries, sibling = write_encoder_weights(
        folder / f"{tower.name}_visual.hmw",
        tower.weights,
        plan.constants(tower.tensors, profile.tensor_dtype),
        tower.tensors,
        profile.tensor_dtype,
        workers,
        bar,
        "of the vision tower's weights",
    )
    common = {"model_type": tower.model_type, "quant": profile.quant}
    files = (
        GraphFile(f"{tower.name}_visual{end}.hmm", [plan.graph(end, profile, entries)], {**common, **plan.message(end)})
        for end in plan.ends
    )
    write_graph_files(folder, files, entries, sibling, self_contained=tower.self_contained)
    for path, listed in plan.lists().items():
        (folder / path).write_text(json.dumps(listed, indent=4))
