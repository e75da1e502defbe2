"""The graph of a tower that pools patches: patches and their places, layers, pooling, and a Linear."""

from __future__ import annotations

from collections.abc import Sequence

from tcim_lite.hmm import Graph, WeightEntry

from ...common.profiles import Profile
from ...graphs.encoder_builder import EncoderBuilder
from ...graphs.values import Ref
from ...weights import encoder_roles as roles
from ...weights.roles import ones
from .image import OneSize
from .sizes import PooledSizes

OUTPUT = "image_embeds"
PLACES = ("encoder.positions.columns", "encoder.positions.rows")  # learned tables [positions, H]
COS, SIN = "encoder.rope.cos", "encoder.rope.sin"  # [positions, head_dim / 4]
SHIFT, FACTORS = "encoder.standard.shift", "encoder.standard.factors"  # [H]
# Of images of one size: column and row of each patch, and how much it counts in each token, [1, tokens, patches].
FIXED_PLACES = ("encoder.places.columns", "encoder.places.rows")
POOLING = "encoder.pooling"


def build_pooled(
    config: PooledSizes, profile: Profile, weights: Sequence[WeightEntry], tokens: int, image: OneSize | None
) -> Graph:
    """Returns the graph for images of up to `tokens` tokens, or of one size."""
    builder = EncoderBuilder("visual", profile.tensor_dtype, weights)
    patches = tokens * config.pooled if image is None else image.patches
    pixels = builder.input("pixel_values", (1, patches, config.patch_inputs))
    mask = pooling = None
    if image is None:
        mask = builder.input("attention_mask", (1, 1, 1, patches))
        pooling = builder.input("pooling_matrix", (1, tokens, patches))
        ids = builder.input("pixel_position_ids", (1, patches, 2), "int32")
        columns, rows = (builder.part(f"encoder.{axis}_part", ids, 2, axis, axis + 1) for axis in range(2))
        places = [builder.reshape(f"encoder.{i}_places", part, (patches,)) for i, part in enumerate((columns, rows))]
    else:
        places = [builder.weight(name) for name in FIXED_PLACES]
        pooling = builder.weight(POOLING) if image.kernel > 1 else None
    x = builder.linear("encoder.patches", pixels, roles.PATCHES.name, roles.PATCHES_BIAS.name)
    for table, where in zip(PLACES, places, strict=True):
        found = builder.gather(f"{table}.of_patches", builder.weight(table), where, 0)
        x = builder.add(f"{table}.added", x, builder.reshape(f"{table}.by_patch", found, x.shape))
    tables = [_turning(builder, axis, where) for axis, where in enumerate(places)]
    for layer in range(config["num_hidden_layers"]):
        x = config.layer.lower(builder, x, layer, tables, mask)
    if pooling is not None:
        x = builder.mat_mul("encoder.pooled", pooling, x)
    if config["standardize"]:
        x = builder.repeated("Add", "encoder.shifted", x, builder.weight(SHIFT))
        x = builder.times("encoder.standardised", x, FACTORS)
    # The norm takes out the factor sqrt(H) of tokens.
    epsilon = config["rms_norm_eps"] / config.hidden
    normed = builder.rms_norm("encoder.normed", x, ones(config.hidden), epsilon)
    return builder.build({builder.linear(OUTPUT, normed, roles.EMBED.name): None})


def _turning(builder: EncoderBuilder, axis: int, where: Ref) -> tuple[Ref, Ref]:
    """Rows of cos and sin at places along an axis, [1, T, head_dim / 4]."""
    rows = [builder.gather(f"{table}.{axis}", builder.weight(table), where, 0) for table in (COS, SIN)]
    cos, sin = (builder.reshape(f"encoder.rope.{axis}.{i}", row, (1, *row.shape)) for i, row in enumerate(rows))
    return cos, sin
