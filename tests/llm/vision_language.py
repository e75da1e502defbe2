"""Tiny vision-language models of transformers with random weights, and what a program around their graphs does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from oracle import random_weights

from tcim_lite.llm import lanes_of
from tcim_lite.llm.vision import patches_of
from tcim_lite.models.families import FAMILIES

torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")

IMAGE_TOKEN = 300  # of the tiny vocabulary
MODELS = {
    "qwen3_vl": "Qwen3VL",
    "qwen2_5_vl": "Qwen2_5_VL",
    "qwen2_vl": "Qwen2VL",
    "paddleocr_vl": "PaddleOCRVL",
    "glm_ocr": "GlmOcr",
}
TOWERS = {**MODELS, "qwen3_5": "Qwen3_5"}
MODELS |= {"qwen3_vl_moe": "Qwen3VLMoe"}  # with the tower of Qwen3-VL
_KINDS = {**TOWERS, **MODELS}


def random_model(family: str, vision: Mapping[str, Any] | None = None, **changes: Any) -> Any:
    """A model whose parts have the family's tiny configs, with changes in the tower and the language part."""
    torch.manual_seed(5)
    text = {**FAMILIES[family].tiny, "initializer_range": 0.05, "bos_token_id": None, "eos_token_id": None, **changes}
    tied = text.pop("tie_word_embeddings")
    config = getattr(transformers, f"{_KINDS[family]}Config")(
        text_config=text,
        vision_config={**FAMILIES[family].vision.tiny, **(vision or {})},
        image_token_id=IMAGE_TOKEN,
        tie_word_embeddings=tied,
        attn_implementation="eager",
    )
    model = getattr(transformers, f"{_KINDS[family]}ForConditionalGeneration")(config).float().eval()
    random_weights(model)
    return model


def patches_for(model: Any, pixels: np.ndarray, dtype: Any = np.float16) -> tuple[Any, list[int]]:
    """What a model takes of an image [3, height, width], rounded to a dtype, and the grid of its patches."""
    vision = model.config.vision_config
    side, merge = vision.patch_size, vision.spatial_merge_size
    grid = [1, *(extent // side for extent in pixels.shape[1:])]
    if model.config.model_type == "paddleocr_vl":  # patches row by row, each an image
        rows = patches_of(pixels, side, 1, 1, dtype).reshape(-1, 3, side, side)
    else:
        rows = patches_of(pixels, side, merge, vision.temporal_patch_size, dtype)
    return torch.tensor(rows).float(), grid


def features_of(model: Any, patches: Any, grids: list[list[int]]) -> list[Any]:
    """What the tower of a model makes of images one behind the other, then what each deepstack input takes."""
    with torch.no_grad():
        found = model.model.get_image_features(patches, torch.tensor(grids), return_dict=True)
    stacks = getattr(found, "deepstack_features", None) or []
    return [
        torch.cat(list(part)) if isinstance(part, (list, tuple)) else part for part in (found.pooler_output, *stacks)
    ]


class Prompt:
    """Tokens with images, and what transformers makes of them.

    Attributes:
        tokens: [N].
        positions: [3, N], time, height and width.
        delta: What the next token's position is more than its number.
        rows: [N, H], embeddings with features of the images in the place of their tokens.
        deepstack: By layer [N, H], zeros at text.
        logits: [N, V], of the whole model at once.
    """

    def __init__(self, model: Any, tokens: np.ndarray, patches: Any = None, grids: list[list[int]] | None = None):
        self.tokens = tokens
        ids, kinds = torch.tensor(tokens)[None], torch.tensor(tokens == IMAGE_TOKEN)[None].int()
        given: dict[str, Any] = {}
        if grids:
            given = {"pixel_values": patches, "image_grid_thw": torch.tensor(grids), "mm_token_type_ids": kinds}
        with torch.no_grad():
            model.model.rope_deltas = None
            self.logits = model(ids, **given).logits[0].numpy()
            rows = model.get_input_embeddings()(ids)
            count = len(tokens)
            self.deepstack: list[np.ndarray] = []
            if not grids:
                self.positions, self.delta = np.tile(np.arange(count), (3, 1)), 0
            else:
                positions, deltas = model.model.get_rope_index(ids, kinds, image_grid_thw=given["image_grid_thw"])
                self.positions, self.delta = positions[:, 0].numpy(), int(deltas[0, 0])
                at = kinds.bool()
                features, *stacks = features_of(model, patches, grids)
                rows = rows.masked_scatter(at[..., None].expand_as(rows), features)
                for part in stacks:
                    stack = torch.zeros_like(rows)
                    stack[at] = part
                    self.deepstack.append(stack[0].numpy())
            self.rows = rows[0].numpy()


def run(module: Any, prompt: Prompt, first: int, count: int) -> np.ndarray:
    """Runs tokens [first, first + count) of a prompt; returns the logits of the last, or what else the graph does."""
    (lane,) = lanes_of(module)
    length = module.get_input_info(module.get_input_name(0)).shape[1]

    def padded(values: np.ndarray) -> np.ndarray:
        part = values[first : first + count]
        return np.concatenate([part, np.zeros((length - count, *part.shape[1:]), part.dtype)])

    module.set_input(module.get_input_name(0), padded(prompt.rows)[None])
    if lane.joined:
        module.set_input(lane.positions[0], np.stack([padded(values) for values in prompt.positions])[:, None])
    else:
        for name, values in zip(lane.positions, prompt.positions, strict=True):
            module.set_input(name, padded(values).astype(np.int32))
    lane.clear_deepstack(module)
    for name, values in zip(lane.deepstack, prompt.deepstack, strict=False):
        module.set_input(name, padded(values)[None])
    module.set_input(lane.valid, first)
    module.set_input(lane.current, count)
    module.run(True)
    return module.get_output(module.get_output_name(0)).numpy().reshape(-1)


def with_images(model: Any, text: list[int], grids: list[list[int]], seed: int = 0) -> Prompt:
    """Tokens of text, with a random image of each grid (in patches) behind each of the first ones' parts."""
    rng = np.random.default_rng(seed)
    vision = model.config.vision_config
    tokens: list[int] = []
    for count, grid in zip(text, [*grids, None], strict=True):
        tokens += rng.integers(0, IMAGE_TOKEN, count).tolist()
        if grid is not None:
            tokens += [IMAGE_TOKEN] * (int(np.prod(grid)) // vision.spatial_merge_size**2)
    side = vision.patch_size
    seen = [patches_for(model, rng.standard_normal((3, grid[1] * side, grid[2] * side)))[0] for grid in grids]
    return Prompt(model, np.array(tokens), torch.cat(seen), grids)
