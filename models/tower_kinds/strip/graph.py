"""The graph of a vision tower whose patches lie in a strip."""

from __future__ import annotations

from collections.abc import Sequence

from tcim_lite.hmm import Graph, Role, WeightEntry

from ...blocks.encoder import EncoderPart, Windows
from ...common.profiles import Profile
from ...graphs.encoder_builder import EncoderBuilder
from ...graphs.values import Ref
from ...weights import encoder_roles as roles
from .sizes import WINDOW, Form, StripSizes


def build_strip(
    config: StripSizes, profile: Profile, weights: Sequence[WeightEntry], form: Form, capacity: int
) -> Graph:
    """Returns the graph of a form, for images of up to `capacity` patches."""
    builder = EncoderBuilder("visual", profile.tensor_dtype, weights)
    frames, side = form.frames, config["patch_size"]
    pixels = builder.input("pixel_values", (frames, 3, side, capacity * side))
    ids = builder.input("position_ids", (frames, capacity), "int32")
    tower = config.tower
    hides = [Role("mask", None, number) if tower.for_torch else None for number in (0, 1)]
    mask = builder.input(tower.mask, (frames, 1, capacity if tower.for_torch else 1, capacity), role=hides[0])
    x = _placed(builder, config, pixels, ids)
    part = EncoderPart(builder=builder, key_mask=None if tower.for_torch else mask)
    if tower.for_torch:
        rows = builder.reshape("encoder.mask_rows", mask, (frames, capacity, capacity))
        part = EncoderPart(builder=builder, window_mask=rows)
    merged = part
    if form.windowed:
        post = builder.input("post_attention_bias", (1, 1, 1, capacity // WINDOW))
        merged = EncoderPart(builder=builder, key_mask=post)
    places, sample_mask = [], None
    if tower.resampled:
        names = ["resampler_pos_embed"] + ["resampler_temporal_pos_embed"] * (frames > 1)
        shape, of_all = (frames, capacity, config.width), (1, 1, 1, frames * capacity)
        if tower.for_torch:
            assert frames == 1  # so a place is where it would be with the frames first
            turned = [builder.input(name, (capacity, frames, config.width)) for name in names]
            places = [builder.reshape(f"encoder.{name}", ref, shape) for name, ref in zip(names, turned, strict=True)]
            given = builder.input(tower.sample_mask, (frames, capacity), role=hides[1])
            sample_mask = builder.reshape("encoder.sample_mask", given, of_all)
        else:
            places = [builder.input(name, shape) for name in names]
            sample_mask = builder.input(tower.sample_mask, of_all)
    for layer in range(config["num_hidden_layers"]):
        for block in config.layer:
            x = block.lower(part, x, layer)
        if form.windowed and layer == config["insert_layer_id"]:
            x = _of_windows(builder, config, x)
            part = merged
    last = (roles.LAST_NORM, roles.LAST_NORM_BIAS)
    x = config.norm.lower(builder, "encoder.last_normed", x, last, None)
    if sample_mask is not None:
        return builder.build({config.resampler.lower(builder, x, places, sample_mask, tower.output): None})
    return builder.build({config.merger.lower(part, x, (1,), "encoder.merger", tower.output): None})


def _placed(builder: EncoderBuilder, config: StripSizes, pixels: Ref, ids: Ref) -> Ref:
    """Patches with their learned positions, [frames, patches, H]."""
    side, shape = config["patch_size"], (*ids.shape, config.hidden)
    planes = builder.patches("encoder.patch_planes", pixels, roles.PATCHES.name, roles.PATCHES_BIAS.name, side)
    rows = builder.transpose("encoder.patch_rows", planes, (0, 2, 3, 1))
    flat = builder.reshape("encoder.places", ids, (ids.shape[0] * ids.shape[1],))
    found = builder.gather("encoder.position_rows", builder.weight(roles.POSITIONS.name), flat, 0)
    x, positions = (
        builder.reshape("encoder.patches", rows, shape),
        builder.reshape("encoder.positions_of", found, shape),
    )
    return builder.add("encoder.placed", x, positions)


def _of_windows(builder: EncoderBuilder, config: StripSizes, x: Ref) -> Ref:
    """One patch of each window, [1, patches / 4, H]."""
    attention, merger = config.windows
    part = EncoderPart(builder=builder, windows=[Windows(0, x.shape[1] // WINDOW, WINDOW)])
    x = attention.lower(part, x, config["num_hidden_layers"])
    return merger.lower(part, x, (1,), "encoder.stacks.0", "encoder.windows_merged", 0)
