"""The vision graphs of a package: which there are, their weights, and the files they are written to."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm.weight_format import GROUP
from tcim_lite.image_grid import table_corners

from ..blocks import Deepstack
from ..blocks.weights import Weight
from ..common import encoder_roles as roles
from ..common.errors import CompileError
from ..common.packing import is_quantized
from ..common.profiles import Profile, profile_for
from ..common.progress import Progress
from ..common.rope import rope_table
from ..common.vision_tensors import VisionTensors
from ..common.weight_spec import CheckpointTensors, LinearSpec, RandomTensors, TensorSource, VectorSpec
from ..family import ModelConfig
from ..tower import TowerConfig
from .graph_files import GraphFile, write_graph_files
from .options import CompileOptions
from .source import Source
from .tower_graph import TowerSpec, build_tower
from .weight_files import write_encoder_weights
from .weights import specs_of

DEFAULT = "default"  # what `--vision` without a size asks for
_SIDE = 448  # pixels of a side, as the vendor compiles unless told otherwise
_MOST_PATCHES = 1 << 16
_FORMATS = ("w8a8h1_sefp", "float16", "float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTower:
    """A tower that is ready to be written.

    Attributes:
        name: Prefix of its files.
        model_type: Of the family.
        config: Its sizes.
        profile: Dtypes and formats.
        weights: Those that come from tensors, but the positions.
        tensors: Where the numbers come from.
        graphs: By what the names of their files end in.
        self_contained: The graphs hold the weights.
    """

    name: str
    model_type: str
    config: TowerConfig
    profile: Profile
    weights: Sequence[LinearSpec | VectorSpec]
    tensors: TensorSource
    graphs: Mapping[str, TowerSpec]
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
    config = family.vision.read(source.config, model.hidden_size, family.title)
    layers = [index for index in range(model.num_layers) if Deepstack() in model.blocks(index)]
    if len(layers) != len(config.stacked):
        raise CompileError(
            f"vision_config: deepstack_visual_indexes names {len(config.stacked)} layers, but {len(layers)} layers of "
            "the language model take what they give"
        )
    quant = options.vision_quant or (options.quant if options.quant in _FORMATS[1:] else _FORMATS[0])
    if quant not in _FORMATS:
        raise CompileError(f"--vision-quant {quant} is not for vision towers; choose from {', '.join(_FORMATS)}")
    profile = profile_for(quant)
    tensors: TensorSource = RandomTensors(options.seed)
    if source.tensors is not None:
        tensors = CheckpointTensors(VisionTensors(source.path))
    tower = PreparedTower(
        name=name,
        model_type=family.model_type,
        config=config,
        profile=profile,
        weights=_weights(config, profile),
        tensors=tensors,
        graphs=_graphs(options, config),
        self_contained=options.self_contained,
    )
    tensors.check([*tower.weights, *([_table_spec(config)] if config.tower.learned else [])])
    return tower


def _graphs(options: CompileOptions, config: TowerConfig) -> dict[str, TowerSpec]:
    """The graphs that `--vision` names."""
    asked = options.vision or DEFAULT
    if config.tower.takes == "gear":
        if options.vision_mask:
            raise CompileError("--vision-mask: this tower has no windows; leave it out")
        if asked == DEFAULT:
            gears = list(config.tower.gears)
        elif re.fullmatch(r"\d{1,6}(,\d{1,6})*", asked):
            gears = [int(gear) for gear in asked.split(",")]
        else:
            raise CompileError(
                f"--vision {asked}: graphs of this tower take any image of up to so many tokens; give their numbers, "
                f"such as --vision {','.join(map(str, config.tower.gears))}, or --vision alone for these"
            )
        specs = {f"_m{gear}": TowerSpec(capacity=gear * config.merged) for gear in gears}
    else:
        height, width = _image_size(asked, config)
        if options.vision_mask and not config.windowed:
            raise CompileError("--vision-mask: this tower has no windows; leave it out")
        patches = (height // config["patch_size"], width // config["patch_size"])
        specs = {"": TowerSpec(capacity=math.prod(patches), patches=patches, window_mask=options.vision_mask)}
    for spec in specs.values():
        if not 0 < spec.capacity <= _MOST_PATCHES:
            raise CompileError(f"--vision {asked} makes {spec.capacity} patches, expected 1 to {_MOST_PATCHES}")
    return specs


def _image_size(asked: str, config: TowerConfig) -> tuple[int, int]:
    """Height and width in pixels."""
    if asked == DEFAULT:
        side = _SIDE // config.cell * config.cell or config.cell
        return side, side
    if not (found := re.fullmatch(r"(\d{1,5})x(\d{1,5})", asked)):
        raise CompileError(
            f"--vision {asked}: expected height x width of the images in pixels, such as --vision 448x448"
        )
    height, width = (int(side) for side in found.groups())
    if not height or not width or height % config.cell or width % config.cell:
        raise CompileError(
            f"--vision {asked}: both sides must be multiples of {config.cell}, the side of a token in pixels"
        )
    return height, width


def _weights(config: TowerConfig, profile: Profile) -> list[LinearSpec | VectorSpec]:
    """All weights in the order of use, but the positions."""
    tensors, hidden, terms = config.tower.tensors, config["hidden_size"], config.patch_inputs
    quantised = is_quantized(profile.body_format)
    padded = -(-terms // GROUP) * GROUP if quantised and config.tower.takes == "image" else terms
    side = config["patch_size"]
    (kernel,) = specs_of([Weight(roles.PATCHES, (hidden,), terms, padded)], tensors, profile, None)
    assert isinstance(kernel, LinearSpec)
    specs: list[LinearSpec | VectorSpec] = [
        replace(kernel, tensor_shapes=((hidden, 3, config["temporal_patch_size"], side, side),))
    ]
    if config.tower.patch_bias:
        specs += specs_of([Weight(roles.PATCHES_BIAS, (hidden,))], tensors, profile, None)
    for layer in range(config["depth"]):
        specs += specs_of((w for block in config.layer(layer) for w in block.weights()), tensors, profile, layer)
    for index in range(len(config.stacked)):
        specs += specs_of(config.merger(stacked=True).weights(), tensors, profile, index)
    return specs + specs_of(config.merger().weights(), tensors, profile, None)


def _table_spec(config: TowerConfig) -> LinearSpec:
    """The learned positions as a matrix."""
    shape = (config["num_position_embeddings"], config["hidden_size"])
    names = config.tower.tensors[roles.POSITIONS].names
    return LinearSpec(
        role=roles.POSITIONS, layer=None, format="linear_f16", shape=shape, tensors=names, tensor_shapes=(shape,)
    )


def _tables(tower: PreparedTower) -> dict[str, NDArray[Any]]:
    """What is computed in the tensors' dtype: rotations, and positions by patch or as they are."""
    config = tower.config
    merge = config["spatial_merge_size"]
    sides = [max(spec.patches) if spec.patches else merge * spec.tokens(config) for spec in tower.graphs.values()]
    rope = rope_table(
        head_dim=config.head_dim // 2,
        theta=config["rope_theta"],
        scaling={"rope_type": "default"},
        max_position_embeddings=max(sides),
        context_length=max(sides),
    )
    scale = np.float32(1 / math.sqrt(config.head_dim))
    found = dict(zip(roles.ROPE, (rope.cos, rope.sin, rope.cos * scale, rope.sin * scale), strict=True))
    if config.tower.takes == "gear":
        found[roles.ONE] = np.ones((1, 1, 1, 1), np.float32)
    if config.tower.learned:
        spec = _table_spec(config)
        table = tower.tensors.matrix(spec.tensors[0], (spec.shape[0], spec.shape[1])).read(0, spec.shape[0])
        for graph in tower.graphs.values():
            if graph.patches is not None:
                side = math.isqrt(len(table))
                ids, counts = table_corners(*graph.patches, merge, side)
                table = sum(counts[index][:, None] * table[ids[index]] for index in range(4))
        found[roles.POSITIONS.name] = table
    return found


def write_tower(folder: Path, tower: PreparedTower, workers: ThreadPoolExecutor, bar: Progress) -> None:
    """Writes the weights and a file for every graph."""
    dtype = tower.profile.tensor_dtype
    constants = {name: part.astype(dtype) for name, part in _tables(tower).items()}
    for spec in tower.graphs.values():
        constants |= spec.constants(tower.config)
    entries, sibling = write_encoder_weights(
        folder / f"{tower.name}_visual.hmw",
        tower.weights,
        constants,
        tower.tensors,
        dtype,
        workers,
        bar,
        "of the vision tower's weights",
    )
    files = (
        GraphFile(
            f"{tower.name}_visual{end}.hmm",
            [build_tower(tower.config, tower.profile, entries, spec)],
            _custom_msg(tower, spec),
        )
        for end, spec in tower.graphs.items()
    )
    write_graph_files(folder, files, entries, sibling, self_contained=tower.self_contained)


def _custom_msg(tower: PreparedTower, spec: TowerSpec) -> dict[str, Any]:
    """What a program may want to know of a graph."""
    config = tower.config
    message = {
        "model_type": tower.model_type,
        "quant": tower.profile.quant,
        "hidden_size": config["out_hidden_size"],
        "patch_size": config["patch_size"],
        "spatial_merge_size": config["spatial_merge_size"],
        "temporal_patch_size": config["temporal_patch_size"],
    }
    if spec.patches is None:
        message |= {"tokens": spec.tokens(config), "num_position_embeddings": config["num_position_embeddings"]}
    if config.windowed:
        message["window_size"] = config["window_size"]
    return message
