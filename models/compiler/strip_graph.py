"""The graph of a vision tower whose patches lie in a strip."""

from __future__ import annotations

from collections.abc import Sequence

from tcim_lite.hmm import Graph, WeightEntry

from ..blocks.encoder import EncoderPart, Windows
from ..common import encoder_roles as roles
from ..common.encoder_builder import EncoderBuilder
from ..common.graph_values import Ref
from ..common.profiles import Profile
from ..strip_tower import WINDOW, Form, StripConfig

OUTPUT = "image_embeds"


def build_strip(
    config: StripConfig, profile: Profile, weights: Sequence[WeightEntry], form: Form, capacity: int
) -> Graph:
    """Returns the graph of a form, for images of up to `capacity` patches."""
    builder = EncoderBuilder("visual", profile.tensor_dtype, weights)
    frames, side = form.frames, config["patch_size"]
    pixels = builder.input("pixel_values", (frames, 3, side, capacity * side))
    ids = builder.input("position_ids", (frames, capacity), "int32")
    mask = builder.input(config.tower.mask, (frames, 1, 1, capacity))
    x = _placed(builder, config, pixels, ids)
    part = EncoderPart(builder=builder, key_mask=mask)
    merged = part
    if form.windowed:
        post = builder.input("post_attention_bias", (1, 1, 1, capacity // WINDOW))
        merged = EncoderPart(builder=builder, key_mask=post)
    places, sample_mask = [], None
    if config.tower.resampled:
        names = ["resampler_pos_embed"] + ["resampler_temporal_pos_embed"] * (frames > 1)
        places = [builder.input(name, (frames, capacity, config.width)) for name in names]
        sample_mask = builder.input("resampler_key_bias", (1, 1, 1, frames * capacity))
    for layer in range(config["num_hidden_layers"]):
        for block in config.layer:
            x = block.lower(part, x, layer)
        if form.windowed and layer == config["insert_layer_id"]:
            x = _of_windows(builder, config, x)
            part = merged
    last = (roles.LAST_NORM, roles.LAST_NORM_BIAS)
    x = config.norm.lower(builder, "encoder.last_normed", x, last, None)
    if sample_mask is not None:
        return builder.build({config.resampler.lower(builder, x, places, sample_mask, OUTPUT): None})
    return builder.build({config.merger.lower(part, x, (1,), "encoder.merger", OUTPUT): None})


def _placed(builder: EncoderBuilder, config: StripConfig, pixels: Ref, ids: Ref) -> Ref:
    """Patches with their learned positions, [frames, patches, H]."""
    side, shape = config["patch_size"], (*ids.shape, config.hidden)
    planes = builder.patches("encoder.patch_planes", pixels, roles.PATCHES.name, roles.PATCHES_BIAS.name, side)
    rows = builder.transpose("encoder.patch_rows", planes, (0, 2, 3, 1))
    flat = builder.reshaped("encoder.places", ids, (ids.shape[0] * ids.shape[1],))
    found = builder.chosen("encoder.position_rows", builder.weight(roles.POSITIONS.name), flat, 0)
    x, positions = (
        builder.reshape("encoder.patches", rows, shape),
        builder.reshape("encoder.positions_of", found, shape),
    )
    return builder.add("encoder.placed", x, positions)


def _of_windows(builder: EncoderBuilder, config: StripConfig, x: Ref) -> Ref:
    """One patch of each window, [1, patches / 4, H]."""
    attention, merger = config.windows
    part = EncoderPart(builder=builder, windows=[Windows(0, x.shape[1] // WINDOW, WINDOW)])
    x = attention.lower(part, x, config["num_hidden_layers"])
    return merger.lower(part, x, (1,), "encoder.stacks.0", "encoder.windows_merged", 0)
