"""One GGUF file with the vision graph of a package, as programs on llama.cpp take it beside that of the model (mmproj).

The graph is a tensor of bytes (I8) called visual.hmm. The keys are those of llama.cpp's own files of vision towers,
whose readers want the sizes of the tower even where a graph takes its place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .gguf import ALIGNMENT, MOST_BYTES, Bytes, check_place, self_contained, write
from .json_object import read_object
from .package import Package

# How llama.cpp calls what makes tokens of an image, by the beginning of the model type.
_PROJECTORS = {"qwen2_5_vl": "qwen2.5vl_merger", "qwen3_vl": "qwen3vl_merger", "qwen3_5": "qwen3vl_merger"}
_NORM_EPS = 1e-6  # of all these towers; their configs do not name it


def pack_vision(package: Package, path: Path) -> dict[str, int]:
    """Writes the vision graph of a package into one file, and returns the bytes of what is in it, by name.

    Raises:
        FileNotFoundError: The package has no vision graph for images of one size.
        ImportError: The package `gguf` is not installed.
        OSError: The file cannot be written.
        ValueError: No such file of this family is known, the graph keeps its weights in another file, the config is
            damaged, or `path` is no file to write.
    """
    check_place(package, path)
    config_path = package.tokenizer_folder / "config.json"
    config = read_object(config_path, MOST_BYTES)
    model_type = str(config.get("model_type", ""))
    family = next((name for name in _PROJECTORS if model_type.startswith(name)), None)
    if family is None:
        raise ValueError(
            f"{config_path}: model_type is {model_type!r:.80}; files of vision graphs are known of Qwen2.5-VL, "
            "Qwen3-VL and Qwen3.5"
        )
    if not package.has("visual.hmm"):
        raise FileNotFoundError(
            f"{package.folder} has no {package.name}_visual.hmm, a graph for images of one size; compile the "
            "checkpoint with --vision HEIGHTxWIDTH --self-contained"
        )
    graph = self_contained(package.graph("visual.hmm"))
    tower = config.get("vision_config")
    if not isinstance(tower, dict):
        raise ValueError(f"{config_path}: vision_config is missing; compile the package again")
    from gguf import GGUFWriter

    writer = GGUFWriter(None, "clip")
    writer.add_type("mmproj")
    writer.add_name(package.name)
    if family == "qwen3_5":
        writer.add_basename("Qwen3.5")  # by which readers tell towers without deepstack features
    writer.add_custom_alignment(ALIGNMENT)
    writer.add_bool("is_hmm", True)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(_PROJECTORS[family])
    first = graph.graphs[0]
    writer.add_vision_image_size(max(first.values[first.inputs[0]].shape[-2:]))
    _add_tower(writer, tower, config_path)
    patch, merge, mean, deviation = _facts(graph.custom_msg, package.graph("visual.hmm"))
    writer.add_vision_patch_size(patch)
    writer.add_vision_spatial_merge_size(merge)
    writer.add_vision_image_mean(mean)
    writer.add_vision_image_std(deviation)
    assets: dict[str, Bytes] = {"visual.hmm": np.memmap(package.graph("visual.hmm"), np.int8, "r")}
    write(writer, assets, path)
    return {name: content.nbytes for name, content in assets.items()}


def _facts(custom_msg: str, path: Path) -> tuple[int, int, list[float], list[float]]:
    """Pixels of a patch's side, patches of a token's side, and mean and deviation of each colour."""
    try:
        facts = json.loads(custom_msg)
        mean, deviation = ([float(value) for value in facts[key]] for key in ("image_mean", "image_std"))
        return int(facts["patch_size"]), int(facts["spatial_merge_size"]), mean, deviation
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path} does not say in its custom_msg what images it takes; compile it with `tcim-lite compile "
            "CHECKPOINT --vision HEIGHTxWIDTH --self-contained`"
        ) from None


def _add_tower(writer: Any, tower: Mapping[str, Any], path: Path) -> None:
    def size(key: str) -> int:
        value = tower.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 32:
            raise ValueError(f"{path}: {key} of vision_config is {value!r:.80}; expected a positive whole number")
        return value

    writer.add_vision_embedding_length(size("hidden_size"))
    writer.add_vision_feed_forward_length(size("intermediate_size"))
    writer.add_vision_block_count(size("depth"))
    writer.add_vision_head_count(size("num_heads"))
    writer.add_vision_projection_dim(size("out_hidden_size"))
    writer.add_vision_attention_layernorm_eps(_NORM_EPS)
    if "window_size" in tower:  # in which attention is, but for every so many layers
        whole = tower.get("fullatt_block_indexes", [7])
        if not isinstance(whole, list) or not whole or not isinstance(whole[0], int):
            raise ValueError(f"{path}: fullatt_block_indexes is {whole!r:.80}; expected the numbers of some layers")
        writer.add_vision_n_wa_pattern(whole[0] + 1)
