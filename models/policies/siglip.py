"""The vision tower of pi0.5: SigLIP, and a Linear that makes a row of the prompt of each patch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tcim_lite.hmm import Graph, WeightEntry

from ..blocks.encoder import EncoderAttention, EncoderMlp, EncoderPart, Norm
from ..blocks.specs import specs_of, table_spec
from ..blocks.weights import Weight
from ..common.config_keys import KeyValues
from ..common.profiles import Profile
from ..family import Tensors
from ..graphs.encoder_builder import EncoderBuilder
from ..tower_kinds.sizes import patch_kernel
from ..weights import encoder_roles as roles
from ..weights.roles import Role
from ..weights.spec import LinearSpec, TensorSource, VectorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Siglip(KeyValues):
    """Sizes of the tower, an `Encoder`.

    Attributes:
        width: Of a row of the prompt.
        side: Patches along a side of an image.
        tensors: Where its weights are.
        source: Where their numbers come from.
    """

    width: int
    side: int
    tensors: Mapping[Role, Tensors]
    source: TensorSource

    @property
    def norm(self) -> Norm:
        """Of its layers, and behind them."""
        return Norm(centred=True)

    @property
    def layer(self) -> tuple[EncoderAttention, EncoderMlp]:
        """The blocks of a layer."""
        hidden, norm = self["hidden_size"], self.norm
        attention = EncoderAttention(hidden=hidden, heads=self["num_attention_heads"], norm=norm, turned=False)
        return attention, EncoderMlp(hidden=hidden, inner=self["intermediate_size"], norm=norm, function="GeluTanh")

    @property
    def places(self) -> LinearSpec:
        """The table of learned positions."""
        return table_spec(roles.POSITIONS, self.tensors, (self.side**2, self["hidden_size"]))

    def specs(self, profile: Profile) -> list[LinearSpec | VectorSpec]:
        """Returns all weights in the order of the package."""
        hidden, patch = self["hidden_size"], self["patch_size"]
        specs: list[LinearSpec | VectorSpec] = [patch_kernel(self.tensors, (hidden, 3, patch, patch), profile)]
        specs += specs_of([Weight(roles.PATCHES_BIAS, (hidden,))], self.tensors, profile, None)
        for layer in range(self["num_hidden_layers"]):
            blocks = (weight for block in self.layer for weight in block.weights())
            specs += specs_of(blocks, self.tensors, profile, layer)
        ends = [
            *self.norm.weights(hidden, roles.LAST_NORM, roles.LAST_NORM_BIAS),
            Weight(roles.MERGER_DOWN, (self.width,), hidden),
            Weight(roles.MERGER_DOWN_BIAS, (self.width,)),
        ]
        return specs + specs_of(ends, self.tensors, profile, None)

    def constants(self, dtype: str) -> dict[str, NDArray[Any]]:
        spec = self.places
        rows, hidden = spec.shape
        table = self.source.matrix(spec.tensors[0], (rows, hidden)).read(0, rows)
        return {spec.role.name: table.astype(dtype)}

    def graph(self, profile: Profile, weights: Sequence[WeightEntry]) -> Graph:
        """`pixel_values` [1, 3, H, W] -> `image_features` [1, patches, width]."""
        builder = EncoderBuilder("siglip", profile.tensor_dtype, weights, profile.activations)
        patch, hidden = self["patch_size"], self["hidden_size"]
        pixels = builder.input("pixel_values", (1, 3, self.side * patch, self.side * patch))
        planes = builder.patches("encoder.patch_planes", pixels, roles.PATCHES.name, roles.PATCHES_BIAS.name, patch)
        rows = builder.transpose("encoder.patch_rows", planes, (0, 2, 3, 1))
        x = builder.reshape("encoder.patches", rows, (1, self.side**2, hidden))
        x = builder.repeated("Add", "encoder.placed", x, builder.weight(roles.POSITIONS.name))
        part = EncoderPart(builder=builder)
        for layer in range(self["num_hidden_layers"]):
            for block in self.layer:
                x = block.lower(part, x, layer)
        x = self.norm.lower(builder, "encoder.last_normed", x, (roles.LAST_NORM, roles.LAST_NORM_BIAS), None)
        made = builder.linear("image_features", x, roles.MERGER_DOWN.name, roles.MERGER_DOWN_BIAS.name)
        return builder.build({made: None})
