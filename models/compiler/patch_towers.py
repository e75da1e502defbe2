"""Vision towers that take patches with their places and what they are pooled by: their graph, and what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightEntry

from ..blocks.specs import specs_of
from ..blocks.weights import Weight
from ..common import encoder_roles as roles
from ..common.encoder_builder import EncoderBuilder
from ..common.graph_values import Ref
from ..common.profiles import Profile
from ..common.roles import ones
from ..common.rope import rope_table
from ..common.weight_spec import LinearSpec, TensorSource, VectorSpec
from ..patch_tower import PatchConfig
from .options import CompileOptions
from .tower_plan import asked_number, check_patches

OUTPUT = "image_embeds"
_PLACES = ("encoder.positions.columns", "encoder.positions.rows")  # learned tables [positions, H]
_COS, _SIN = "encoder.rope.cos", "encoder.rope.sin"  # [positions, head_dim / 4]
_SHIFT, _FACTORS = "encoder.standard.shift", "encoder.standard.factors"  # [H]


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchPlan:
    """A `TowerPlan` of such a tower.

    Attributes:
        config: Its sizes.
        tokens: Of an image at most.
    """

    config: PatchConfig
    tokens: int

    @property
    def ends(self) -> Sequence[str]:
        return ("",)

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
        rope = rope_table(
            head_dim=config["head_dim"] // 2,
            theta=config["rope_theta"],
            scaling={"rope_type": "default"},
            max_position_embeddings=config["position_embedding_size"],
            context_length=config["position_embedding_size"],
        )
        found: dict[str, NDArray[Any]] = {
            roles.ONE: np.ones((1, 1, 1, 1), dtype),
            roles.PATCHES_BIAS.name: -patches.read(0, config.hidden).sum(axis=1, dtype=np.float64).astype(np.float32),
            **{name: part.reshape(-1, config.hidden).astype(dtype) for name, part in zip(_PLACES, places, strict=True)},
            _COS: rope.cos.astype(dtype),
            _SIN: rope.sin.astype(dtype),
            **{ones(count): np.ones(count, np.float32) for count in sorted({config["head_dim"], config.hidden})},
        }
        if config["standardize"]:
            shift, factors = (tensors.vector(spec) for spec in self._standard())
            # Of tokens that are sqrt(H) times as large.
            found |= {_SHIFT: (-shift / np.float32(config.hidden**0.5)).astype(dtype), _FACTORS: factors.astype(dtype)}
        return found

    def graph(self, end: str, profile: Profile, entries: Sequence[WeightEntry]) -> Graph:
        config, patches = self.config, self.tokens * self.config.pooled
        builder = EncoderBuilder("visual", profile.tensor_dtype, entries)
        pixels = builder.input("pixel_values", (1, patches, config.patch_inputs))
        mask = builder.input("attention_mask", (1, 1, 1, patches))
        pooling = builder.input("pooling_matrix", (1, self.tokens, patches))
        ids = builder.input("pixel_position_ids", (1, patches, 2), "int32")
        columns, rows = (builder.part(f"encoder.{axis}_part", ids, 2, axis, axis + 1) for axis in range(2))
        places = [builder.reshape(f"encoder.{i}_places", part, (patches,)) for i, part in enumerate((columns, rows))]
        x = builder.linear("encoder.patches", pixels, roles.PATCHES.name, roles.PATCHES_BIAS.name)
        for table, where in zip(_PLACES, places, strict=True):
            found = builder.gather(f"{table}.of_patches", builder.weight(table), where, 0)
            x = builder.add(f"{table}.added", x, builder.reshape(f"{table}.by_patch", found, x.shape))
        tables = [self._turning(builder, axis, where) for axis, where in enumerate(places)]
        for layer in range(config["num_hidden_layers"]):
            x = config.layer.lower(builder, x, layer, tables, mask)
        x = builder.mat_mul("encoder.pooled", pooling, x)
        if config["standardize"]:
            x = builder.add_repeated("encoder.shifted", x, builder.weight(_SHIFT))
            x = builder.times("encoder.standardised", x, _FACTORS)
        # The norm takes out the factor sqrt(H) of tokens.
        epsilon = config["rms_norm_eps"] / config.hidden
        normed = builder.rms_norm("encoder.normed", x, ones(config.hidden), epsilon)
        return builder.build({builder.linear(OUTPUT, normed, roles.EMBED.name): None})

    def message(self, end: str) -> dict[str, Any]:
        config = self.config
        return {
            "hidden_size": config.width,
            "patch_size": config["patch_size"],
            "patches": self.tokens * config.pooled,
            "pooling_kernel_size": config["pooling_kernel_size"],
            "tokens": self.tokens,
        }

    def _turning(self, builder: EncoderBuilder, axis: int, where: Ref) -> tuple[Ref, Ref]:
        """Rows of cos and sin at places along an axis, [1, T, head_dim / 4]."""
        rows = [builder.gather(f"{table}.{axis}", builder.weight(table), where, 0) for table in (_COS, _SIN)]
        cos, sin = (builder.reshape(f"encoder.rope.{axis}.{i}", row, (1, *row.shape)) for i, row in enumerate(rows))
        return cos, sin

    def _standard(self) -> list[VectorSpec]:
        """What is subtracted from tokens, and what multiplies them then."""
        return [
            VectorSpec(
                role=role, layer=None, tensors=self.config.tower.tensors[role].names, lengths=(self.config.hidden,)
            )
            for role in (roles.SHIFT, roles.FACTORS)
        ]


def patch_plan(options: CompileOptions, config: PatchConfig) -> PatchPlan:
    """The graph of so many tokens as `--vision` says.

    Raises:
        CompileError: It cannot be.
    """
    tokens = asked_number(options, config.tower.tokens, "tokens")
    check_patches(options, tokens * config.pooled)
    return PatchPlan(config=config, tokens=tokens)
