"""Towers that pool patches: their graph, and what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightEntry

from ...blocks.specs import specs_of
from ...blocks.weights import Weight
from ...common.profiles import Profile
from ...common.rope import Rope
from ...weights import encoder_roles as roles
from ...weights.roles import ones
from ...weights.spec import LinearSpec, TensorSource, VectorSpec
from ..asked import Asked
from .graph import COS, FACTORS, FIXED_PLACES, PLACES, POOLING, SHIFT, SIN, build_pooled
from .image import OneSize, one_size
from .sizes import PooledSizes


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledPlan:
    """A `TowerPlan` of such a tower.

    Attributes:
        config: Its sizes.
        tokens: Of an image at most.
        image: The size of all images; None for any.
    """

    config: PooledSizes
    tokens: int
    image: OneSize | None = None

    @property
    def ends(self) -> Sequence[str]:
        return ("",)

    def other_end(self, end: str) -> str | None:
        """Programs for images of one size look for it in the name."""
        return None if self.image is None else f"_{self.image.width}x{self.image.height}"

    def weights(self, profile: Profile) -> list[LinearSpec | VectorSpec]:
        config, tensors = self.config, self.config.tower.tensors
        # Numbers of pixels p count as 2 p - 1: here a factor of the matrix, and a bias.
        specs = specs_of(
            [Weight(roles.PATCHES, (config.hidden,), config.patch_inputs, scale=2.0)], tensors, profile, None
        )
        for layer in range(config["num_hidden_layers"]):
            specs += specs_of(config.layer.weights(), tensors, profile, layer)
        return [*specs, *specs_of([Weight(roles.EMBED, (config.width,), config.hidden)], tensors, profile, None)]

    def tables(self) -> list[LinearSpec | VectorSpec]:
        config, tensors = self.config, self.config.tower.tensors
        shape = (2, config["position_embedding_size"], config.hidden)
        found: list[LinearSpec | VectorSpec] = [
            LinearSpec(
                role=roles.POSITIONS,
                layer=None,
                format="linear_f16",
                shape=(shape[0], shape[1] * shape[2]),
                tensors=tensors[roles.POSITIONS].names,
                tensor_shapes=(shape,),
            )
        ]
        return [*found, *(self._standard() if config["standardize"] else ())]

    def constants(self, tensors: TensorSource, dtype: str) -> dict[str, NDArray[Any]]:
        config = self.config
        (table,), own = self.tables()[:1], config.tower.tensors
        places = tensors.matrix(table.tensors[0], table.tensor_shapes[0]).read(0, 2)
        patches = tensors.matrix(own[roles.PATCHES].names[0], (config.hidden, config.patch_inputs))
        rope = Rope(head_dim=config["head_dim"] // 2, theta=config["rope_theta"])
        turns = rope.table(config["position_embedding_size"])
        found: dict[str, NDArray[Any]] = {
            roles.PATCHES_BIAS.name: -patches.read(0, config.hidden).sum(axis=1, dtype=np.float64).astype(np.float32),
            **{name: part.reshape(-1, config.hidden).astype(dtype) for name, part in zip(PLACES, places, strict=True)},
            COS: turns.cos.astype(dtype),
            SIN: turns.sin.astype(dtype),
            **{ones(count): np.ones(count, np.float32) for count in sorted({config["head_dim"], config.hidden})},
        }
        if config["standardize"]:
            shift, factors = (tensors.vector(spec) for spec in self._standard())
            # Of tokens that are sqrt(H) times as large.
            found |= {SHIFT: (-shift / np.float32(config.hidden**0.5)).astype(dtype), FACTORS: factors.astype(dtype)}
        if self.image is None:
            return {roles.ONE: np.ones((1, 1, 1, 1), dtype), **found}
        found |= {name: place.astype(np.int32) for name, place in zip(FIXED_PLACES, self.image.places(), strict=True)}
        return found | ({POOLING: self.image.pooling()[None].astype(dtype)} if self.image.kernel > 1 else {})

    def graph(self, end: str, profile: Profile, entries: Sequence[WeightEntry]) -> Graph:
        return build_pooled(self.config, profile, entries, self.tokens, self.image)

    def message(self, end: str) -> dict[str, Any]:
        config, image = self.config, self.image
        sizes = {} if image is None else {"image_height": image.height, "image_width": image.width}
        kernel = config["pooling_kernel_size"] if image is None else image.kernel
        return {
            "hidden_size": config.width,
            "patch_size": config["patch_size"],
            "patches": self.tokens * kernel**2,
            "pooling_kernel_size": kernel,
            "tokens": self.tokens,
            **sizes,
        }

    def lists(self) -> dict[Path, Any]:
        return {}

    def _standard(self) -> list[VectorSpec]:
        """What is subtracted from tokens, and what multiplies them then."""
        return [
            VectorSpec(
                role=role, layer=None, tensors=self.config.tower.tensors[role].names, lengths=(self.config.hidden,)
            )
            for role in (roles.SHIFT, roles.FACTORS)
        ]


def pooled_plan(asked: Asked, config: PooledSizes) -> PooledPlan:
    """The graph of so many tokens, or for images of the size, that `--vision` says.

    Raises:
        CompileError: It cannot be.
    """
    if "x" in asked.size:
        image = one_size(asked, config)
        asked.check(image.patches)
        return PooledPlan(config=config, tokens=image.tokens, image=image)
    tokens = asked.number(config.tower.tokens, "tokens")
    asked.check(tokens * config.pooled)
    return PooledPlan(config=config, tokens=tokens)
