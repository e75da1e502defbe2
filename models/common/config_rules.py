"""Parts of `config.json` that are more than a key: objects in it, RoPE in both spellings, and sliding windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from .config_keys import flag, positive, size
from .errors import CompileError

# (config.json, number of layers) -> the sliding window of each layer, None for one that sees the whole context
Windows: TypeAlias = "tuple[int | None, ...]"
WindowRule: TypeAlias = Callable[[Mapping[str, Any], int], Windows]
# Which position turns each frequency: 0 that in time, 1 that in height, 2 that in width; empty where there is only one
Axes: TypeAlias = "tuple[int, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """What some layers turn by, where others turn by the RoPE of `ModelConfig`.

    Attributes:
        theta: Base of the frequencies.
        scaling: As `ModelConfig.rope_scaling`.
        head_dim: Elements of a head that turn, the first ones.
    """

    theta: float
    scaling: Mapping[str, Any]
    head_dim: int


def read_rope(
    raw: Mapping[str, Any], max_positions: int, usual: Mapping[str, Any], usual_theta: float, partial: bool = False
) -> tuple[float, dict[str, Any]]:
    """Returns theta and the scaling, which always holds `rope_type`, from `rope_parameters` or the older
    `rope_theta` with `rope_scaling`; `usual` and `usual_theta` are those of a file that does not say."""
    # transformers lets a rope_scaling that is present win over rope_parameters.
    said = usual if raw.get("rope_parameters") is None else _object(raw, "rope_parameters")
    scaling = _object(raw, "rope_scaling") or said
    if isinstance(scaling.get("full_attention"), Mapping):  # nested by layer type
        scaling = scaling["full_attention"]
    scaling = dict(scaling)
    # Older files say "type"; the vendor's own say both.
    scaling["rope_type"] = scaling.get("rope_type") or scaling.pop("type", None) or "default"
    if not isinstance(scaling["rope_type"], str):
        raise CompileError(f"config.json: rope_type must be a string, got {scaling['rope_type']!r:.40}")
    for place in (raw, scaling):
        turned = partial or scaling["rope_type"] == "proportional"  # the latter has frequencies of 0 for the rest
        if (factor := place.get("partial_rotary_factor")) not in (None, 1) and not turned:
            raise CompileError(f"config.json: partial_rotary_factor={factor!r} is not supported, expected 1 or none")
    theta = scaling.pop("rope_theta", None)
    theta = positive("rope_theta", raw.get("rope_theta", usual_theta) if theta is None else theta)
    if "original_max_position_embeddings" in raw:
        scaling["original_max_position_embeddings"] = raw["original_max_position_embeddings"]
    scaling.setdefault("original_max_position_embeddings", max_positions)
    return theta, scaling


def read_local_rope(raw: Mapping[str, Any], head_dim: int) -> Rope:
    """Returns the RoPE of layers with a sliding window: `sliding_attention` in `rope_parameters`, or the older
    `rope_local_base_freq`, without a scaling."""
    parameters = raw.get("rope_parameters")
    own = parameters.get("sliding_attention") if isinstance(parameters, Mapping) else None
    own = {} if own is None else own
    if not isinstance(own, Mapping):
        raise CompileError(f"config.json: rope parameters of sliding_attention must be an object, got {own!r:.80}")
    scaling = {"rope_type": "default", **own}
    theta = scaling.pop("rope_theta", None)
    if theta is None:
        theta = raw.get("rope_local_base_freq", 10000.0)
    if not isinstance(scaling["rope_type"], str):
        raise CompileError(f"config.json: rope_type must be a string, got {scaling['rope_type']!r:.40}")
    return Rope(theta=positive("rope_local_base_freq", theta), scaling=scaling, head_dim=head_dim)


def read_rotary_dim(raw: Mapping[str, Any], scaling: Mapping[str, Any], usual: float, head_dim: int) -> int:
    """Returns how many elements of a head turn, the first ones; `usual` is their share in a file that does not say."""
    factor = positive(
        "partial_rotary_factor", scaling.get("partial_rotary_factor", raw.get("partial_rotary_factor", usual))
    )
    dim = int(head_dim * factor)
    if not 2 <= dim <= head_dim or dim % 2:
        raise CompileError(f"config.json: partial_rotary_factor={factor} turns {dim} of {head_dim} elements of a head")
    return dim


def unnested(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Returns the keys of a language model that a file keeps in an object of its own, or beside the others.

    A `path` of several names, with points between, is that of an object in another; either may not be there.
    """
    for name in path.split("."):
        own = _object(raw, name)
        # Files say that the head is tied in either place.
        said = [place["tie_word_embeddings"] for place in (raw, own) if "tie_word_embeddings" in place]
        raw = {**raw, **own, **({"tie_word_embeddings": any(said)} if said else {})}
    return raw


def _object(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object in a config, empty where there is none."""
    value = raw.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise CompileError(f"config.json: {name} must be an object, got {value!r:.80}")
    return value


def object_in(raw: Mapping[str, Any], name: str, where: str = "config.json") -> Mapping[str, Any]:
    """Returns the object that a file has under a name."""
    section = raw.get(name)
    if not isinstance(section, Mapping):
        raise CompileError(f"{where}: {name} must be an object, got {section!r:.80}")
    return section


def vision_config(raw: Mapping[str, Any], title: str) -> Mapping[str, Any]:
    """Returns the object in which a file of the family `title` has the keys of its vision tower."""
    thinker = raw.get("thinker_config")
    section = (thinker if isinstance(thinker, Mapping) else raw).get("vision_config")
    if section is None:
        raise CompileError(
            f"--vision: config.json has no vision_config, so there is no vision tower; {title} models with one do"
        )
    if not isinstance(section, Mapping):
        raise CompileError(f"config.json: vision_config must be an object, got {section!r:.80}")
    return section


def axes_in_blocks(scaling: Mapping[str, Any], half: int) -> Axes:
    """The first frequencies turn by time, the next by height, the last by width, as `mrope_section` counts them."""
    sections = _sections(scaling, half, default=(16, 24, 24))
    return tuple(axis for axis, count in enumerate(sections) for _ in range(count))


def axes_in_turns(scaling: Mapping[str, Any], half: int) -> Axes:
    """Frequencies turn by time, height and width in turns, as long as `mrope_section` has some left of an axis; what
    remains turns by time."""
    if (turns := scaling.get("mrope_interleaved", True)) is not True:
        raise CompileError(f"config.json: mrope_interleaved={turns!r} is not supported, expected true or none")
    _, height, width = _sections(scaling, half, default=(24, 20, 20))
    last = {1: 3 * height, 2: 3 * width}
    return tuple(j % 3 if j < last.get(j % 3, 0) else 0 for j in range(half))


def _sections(scaling: Mapping[str, Any], half: int, default: tuple[int, ...]) -> list[int]:
    sections = scaling.get("mrope_section", default)
    if not isinstance(sections, (list, tuple)) or len(sections) != 3 or any(type(n) is not int for n in sections):
        raise CompileError(f"config.json: mrope_section must be three whole numbers, got {sections!r:.80}")
    if min(sections) < 0 or sum(sections) != half:
        raise CompileError(
            f"config.json: mrope_section={list(sections)!r} must add up to {half}, one for each pair that RoPE turns"
        )
    return list(sections)


def no_window(raw: Mapping[str, Any], layers: int) -> Windows:
    """Every layer attends to the whole context."""
    return (None,) * layers


def window_or_none(raw: Mapping[str, Any], layers: int) -> Windows:
    """`sliding_window` in every layer; none where it is absent."""
    window = raw.get("sliding_window")
    return (None if window is None else size("sliding_window", window),) * layers


def window_of_all_layers(raw: Mapping[str, Any], layers: int) -> Windows:
    """`use_sliding_window` turns the window on, in every layer."""
    window = (
        raw.get("sliding_window", 4096) if flag("use_sliding_window", raw.get("use_sliding_window", False)) else None
    )
    return (None if window is None else size("sliding_window", window),) * layers


def window_of_every_other_layer(raw: Mapping[str, Any], layers: int) -> Windows:
    """Layers that `layer_types` names have the window; where it is absent, the first and every other one."""
    types = raw.get("layer_types")
    sliding = [layer % 2 == 0 for layer in range(layers)] if types is None else sliding_layers(types, layers)
    return windows_in(sliding, raw.get("sliding_window", 128))


def window_between_full_layers(raw: Mapping[str, Any], layers: int) -> Windows:
    """Layers that `layer_types` names have the window; where it is absent, all but the first and every fourth one."""
    types = raw.get("layer_types")
    sliding = [layer % 4 != 0 for layer in range(layers)] if types is None else sliding_layers(types, layers)
    return windows_in(sliding, raw.get("sliding_window", 128))


def window_of_some_layers(raw: Mapping[str, Any], layers: int) -> Windows:
    """`use_sliding_window` turns the window on, in layers that `layer_types` or `max_window_layers` names."""
    types = raw.get("layer_types")
    slides = flag("use_sliding_window", raw.get("use_sliding_window", False))
    window = raw.get("sliding_window", 4096) if slides else None
    if types is None:
        sliding = [layer >= max_window_layers(raw) for layer in range(layers)]
    else:
        sliding = sliding_layers(types, layers)
        if window is None:
            window = raw.get("sliding_window")
    return windows_in(sliding, window)


def window_of_most_layers(raw: Mapping[str, Any], layers: int) -> Windows:
    """`sliding_window` in layers that `layer_types` names, or in all but every `sliding_window_pattern`th one."""
    types, window = raw.get("layer_types"), raw.get("sliding_window", 4096)
    if types is not None:
        return windows_in(sliding_layers(types, layers), window)
    if window is None:
        return (None,) * layers
    step = size("sliding_window_pattern", raw.get("sliding_window_pattern", 4))
    return windows_in([(layer + 1) % step != 0 for layer in range(layers)], window)


def max_window_layers(raw: Mapping[str, Any]) -> int:
    """Where Qwen's files say that layers change from one kind to the other."""
    first = raw.get("max_window_layers", 28)
    if isinstance(first, bool) or not isinstance(first, int):
        raise CompileError(f"config.json: max_window_layers must be an integer, got {first!r}")
    return first


def windows_in(sliding: Sequence[bool], window: object) -> Windows:
    """The same window, if there is one, in the layers that are `sliding`."""
    if window is None or not any(sliding):
        return (None,) * len(sliding)
    length = size("sliding_window", window)
    return tuple(length if slides else None for slides in sliding)


def sliding_layers(types: object, layers: int) -> list[bool]:
    """Which layers `layer_types` gives a window."""
    kinds = ("full_attention", "sliding_attention")
    if not isinstance(types, list) or len(types) != layers or any(kind not in kinds for kind in types):
        raise CompileError(f"config.json: layer_types must name {layers} attention layers, got {types!r}")
    return [kind == "sliding_attention" for kind in types]


def dense_first(values: Mapping[str, Any]) -> tuple[str, ...]:
    """`mlp_layer_types` of a config that does not have it: dense in the first layer."""
    return ("dense",) + ("sparse",) * (values["num_hidden_layers"] - 1)


def dense_layers(types: Sequence[str], layers: int) -> list[bool]:
    """Which layers `mlp_layer_types` gives an MLP for every token; the others have experts."""
    if len(types) != layers or not set(types) <= {"dense", "sparse"}:
        raise CompileError(f"config.json: mlp_layer_types must name {layers} MLPs, dense or sparse, got {types!r:.80}")
    return [kind == "dense" for kind in types]
