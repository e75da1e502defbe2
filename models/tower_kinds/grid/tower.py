"""Towers whose patches lie in a grid and turn by their row and their column, as those of Qwen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...blocks.encoder import Norm
from ...checkpoints.checkpoint import Checkpoint
from ...common.config_keys import Key, Only, positive, read_keys
from ...common.config_rules import vision_config
from ...common.errors import CompileError
from ...family import Tensors
from ...model_config import ModelConfig
from ...weights.roles import Role
from ..asked import Asked
from .plan import GridPlan, grid_plan
from .sizes import GridSizes
from .tensors import GridTensors

_IMAGES = {
    "image": "images of one size",
    "cut": "images of some sizes, as patches",
    "gear": "any image, in gears, or images of one size",
}
_KEYS: tuple[Key | Only, ...] = (
    Key("depth"),
    Key("hidden_size"),
    Key("intermediate_size"),
    Key("num_heads"),
    Key("out_hidden_size"),
    Key("patch_size"),
    Key("spatial_merge_size", absent=2),
    Key("temporal_patch_size", absent=2),
    Only("in_channels", 3),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridTower:
    """The vision tower of a family, a `Tower`.

    Attributes:
        takes: What a graph is made for: images of one size, these as patches that the program has cut, or any image of
            up to so many tokens, a gear.
        keys: Of `vision_config`, beside those that all towers of this kind have.
        norm: Of every norm.
        function: Of the MLPs, an op; None for silu of a gate.
        steepness: As `EncoderMlp.steepness`.
        patch_bias: The patch embedding has a bias.
        learned: Patches have learned positions, a square table that is resized to the grid of an image.
        centred: Its cells lie in the image as the patches do, so that it reaches to the edges; otherwise the first and
            the last of a side lie where the first and the last patch do.
        tensors: Where every weight comes from, without what the names of all vision tensors begin with.
        mean: Of colours, each 0 to 1, which a graph for images of one size subtracts; None where it takes the numbers
            of the processor.
        deviation: By which it then divides.
        framed: An image is so many frames of a video as `temporal_patch_size` says, otherwise one.
        last_norm: There is a norm behind the last layer.
        merger_norm: That of the merger, where it is another.
        merger_growth: Of a merger with a gate, how many times as wide it is as a token; None for one without.
        head_norms: Heads of q and k have norms.
        gears: Of one that takes any image, in tokens, unless the user says otherwise.
        sizes: Of one that takes cut images, height and width in pixels, likewise.
        file_end: What names of graphs for images of one size end in, with the size and the frames of a patch in it.
        lists_sizes: The model whose programs look for a file that lists them; empty for none.
        usual_keys: Makes the keys of the others of a `vision_config` that spells them in another way.
        tiny: A `vision_config` for tests, of a model that is as wide as the family's tiny one.
    """

    takes: Literal["image", "cut", "gear"]
    keys: tuple[Key | Only, ...]
    norm: Norm
    function: str | None
    patch_bias: bool
    learned: bool
    tensors: Mapping[Role, Tensors]
    tiny: Mapping[str, Any]
    centred: bool = False
    mean: tuple[float, float, float] | None = (0.5, 0.5, 0.5)
    deviation: tuple[float, float, float] = (0.5, 0.5, 0.5)
    gears: tuple[int, ...] = ()
    sizes: tuple[tuple[int, int], ...] = ()
    file_end: str = ""
    lists_sizes: str = ""
    steepness: float = 1.0
    usual_keys: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    framed: bool = True
    last_norm: bool = False
    merger_norm: Norm | None = None
    merger_growth: int | None = None
    head_norms: bool = False

    @property
    def images(self) -> str:
        return _IMAGES[self.takes]

    def plan(self, asked: Asked, raw: Mapping[str, Any], model: ModelConfig) -> GridPlan:
        return grid_plan(asked, self.read(raw, model.hidden_size, model.family.title), model)

    def store(self, folder: Path) -> Checkpoint:
        return GridTensors(folder)

    def read(self, raw: Mapping[str, Any], width: int, title: str) -> GridSizes:
        """Reads the `vision_config` of a parsed `config.json`, of a language model with hidden states of `width`.

        Raises:
            CompileError: It is missing, or a value is missing, malformed or not supported.
        """
        section = {"out_hidden_size": width, **self.usual_keys(vision_config(raw, title))}
        rope = section.get("rope_parameters") or {}
        if not isinstance(rope, Mapping):
            raise CompileError(f"vision_config: rope_parameters must be an object, got {rope!r:.40}")
        keys = read_keys((*_KEYS, *self.keys), section, f"the vision tower of {title}")
        values = {**keys, "rope_theta": positive("rope_theta", rope.get("rope_theta", 10000.0))}
        if not self.framed:
            values["temporal_patch_size"] = 1
        sizes = GridSizes(tower=self, values=values, width=width)
        sizes.check()
        return sizes
