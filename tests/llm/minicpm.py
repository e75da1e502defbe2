"""MiniCPM-V with random weights: 4.6 of transformers, and 4.5, whose classes come with its checkpoint, written here.

The tower of 4.5 is SigLIP with learned positions by the nearest place in their table. Its resampler is that of
"MiniCPM-V 4.5: Cooking Efficient MLLMs via Architecture, Data, and Training Recipe": learned queries attend to the
patches of one image, or of a few frames of a video together; keys have sines and cosines of their column and row, and
of their time.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import random_model, random_weights
from safetensors.numpy import save_file

from tcim_lite.models.families import FAMILIES

torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")

CAPACITY, FRAMES, HIDDEN = 64, 6, -65504.0
_WIDTH, _QUERIES = 256, 8
_TINY = FAMILIES["minicpmv"].vision.tiny


def model_4_6(image: int, **changes: Any) -> Any:
    """A model of transformers; changes are those of the language model."""
    torch.manual_seed(5)
    text = {**FAMILIES["minicpmv4_6"].tiny, "initializer_range": 0.05, "bos_token_id": None, "eos_token_id": None}
    tied, layer = text.pop("tie_word_embeddings"), text.pop("insert_layer_id")
    config = transformers.MiniCPMV4_6Config(
        text_config={**text, **changes, "model_type": "qwen3_5_text"},
        vision_config={**FAMILIES["minicpmv4_6"].vision.tiny, "initializer_range": 0.1},
        insert_layer_id=layer,
        image_token_id=image,
        tie_word_embeddings=tied,
        attn_implementation="eager",
    )
    model = transformers.MiniCPMV4_6ForConditionalGeneration(config).float().eval()
    random_weights(model)
    return model


def save_4_6(folder: Path) -> Any:
    """Such a model, and its checkpoint in a folder."""
    model = model_4_6(300)
    with torch.no_grad():
        for name, parameter in model.model.vision_tower.named_parameters():
            if parameter.ndim > 1:
                parameter.copy_(torch.randn_like(parameter) * (0.3 if "embed" in name else 0.1))
    model.save_pretrained(folder)
    return model


class _Attention(torch.nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, torch.nn.Linear(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part(x).view(len(x), self.heads, -1).transpose(0, 1) for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        shares = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
        return self.out_proj((shares @ v).transpose(0, 1).reshape(x.shape))


class _Layer(torch.nn.Module):
    def __init__(self, width: int, heads: int, inner: int):
        super().__init__()
        self.layer_norm1, self.layer_norm2 = (torch.nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.self_attn = _Attention(width, heads)
        self.mlp = torch.nn.ModuleDict({"fc1": torch.nn.Linear(width, inner), "fc2": torch.nn.Linear(inner, width)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        inner = torch.nn.functional.gelu(self.mlp["fc1"](self.layer_norm2(x)), approximate="tanh")
        return x + self.mlp["fc2"](inner)


def positions_of(rows: int, columns: int, side: int) -> np.ndarray:
    """Where the learned positions of an image's patches are in their table of side x side."""
    down, right = (np.arange(count) * side // count for count in (rows, columns))
    return (down[:, None] * side + right).reshape(-1)


class Siglip(torch.nn.Module):
    """[3, height, width] -> [patches, H], row by row."""

    def __init__(self, config: dict[str, int]):
        super().__init__()
        width, patch = config["hidden_size"], config["patch_size"]
        self.patch, self.side = patch, config["image_size"] // patch
        self.embeddings = torch.nn.ModuleDict(
            {
                "patch_embedding": torch.nn.Conv2d(3, width, patch, patch),
                "position_embedding": torch.nn.Embedding(self.side**2, width),
            }
        )
        layers = (
            _Layer(width, config["num_attention_heads"], config["intermediate_size"])
            for _ in range(config["num_hidden_layers"])
        )
        self.encoder = torch.nn.ModuleDict({"layers": torch.nn.ModuleList(layers)})
        self.post_layernorm = torch.nn.LayerNorm(width, eps=1e-6)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        rows, columns = (extent // self.patch for extent in pixels.shape[1:])
        x = self.embeddings["patch_embedding"](pixels[None])[0].flatten(1).T
        x = x + self.embeddings["position_embedding"](torch.tensor(positions_of(rows, columns, self.side)))
        for layer in self.encoder["layers"]:
            x = layer(x)
        return self.post_layernorm(x)


def waves(positions: np.ndarray, width: int) -> np.ndarray:
    """[n] -> [n, width]: sines, then cosines, of frequencies that fall from 1 to 1 / 10000."""
    angles = positions[:, None] * 10000.0 ** -(np.arange(width // 2) / (width // 2))
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)


def places_of(rows: int, columns: int, width: int) -> np.ndarray:
    """[patches, width]: one half by the column of a patch, the other by its row."""
    down, right = (index.reshape(-1) for index in np.indices((rows, columns)))
    return np.concatenate([waves(right, width // 2), waves(down, width // 2)], 1)


class Resampler(torch.nn.Module):
    """Patches of the frames of a group, each [patches, H] -> [queries, width]."""

    def __init__(self, hidden: int, width: int, queries: int):
        super().__init__()
        self.query = torch.nn.Parameter(torch.randn(queries, width) * 0.5)
        self.proj = torch.nn.Parameter(torch.randn(width, width) * width**-0.5)
        self.kv_proj = torch.nn.Linear(hidden, width, bias=False)
        self.attn = torch.nn.MultiheadAttention(width, width // 128)
        for name in ("ln_q", "ln_kv", "ln_post"):
            setattr(self, name, torch.nn.LayerNorm(width, eps=1e-6))

    def forward(
        self, frames: list[torch.Tensor], sizes: list[tuple[int, int]], times: list[int | None]
    ) -> torch.Tensor:
        values = [self.ln_kv(self.kv_proj(frame)) for frame in frames]
        keys = []
        for value, size, time in zip(values, sizes, times, strict=True):
            place = places_of(*size, value.shape[1])
            if time is not None:
                place = place + waves(np.array([time]), value.shape[1])
            keys.append(value + torch.tensor(place))
        found, _ = self.attn(self.ln_q(self.query), torch.cat(keys), torch.cat(values), need_weights=False)
        return self.ln_post(found) @ self.proj


def save_4_5(folder: Path, **changes: Any) -> tuple[Siglip, Resampler, Any]:
    """The parts of a model, and a checkpoint in a folder with them; changes are those of the language model."""
    torch.manual_seed(6)
    siglip, resampler = Siglip(_TINY).eval(), Resampler(_TINY["hidden_size"], _WIDTH, _QUERIES).eval()
    for part in (siglip, resampler):
        random_weights(part)
        with torch.no_grad():
            for name, parameter in part.named_parameters():
                if name.startswith("ln_"):
                    parameter.add_(torch.randn_like(parameter) * 0.2)
                elif name == "attn.in_proj_weight":
                    parameter.mul_(3)
    record = FAMILIES["minicpmv"]
    text = {key: value for key, value in record.tiny.items() if key not in ("version", "query_num")}
    config = {**record.tiny_config, **changes, "vision_config": _TINY}
    model = random_model({**text, **changes})
    tensors = {f"llm.{name}": values.numpy() for name, values in model.state_dict().items()}
    for name, part in (("vpm", siglip), ("resampler", resampler)):
        tensors |= {f"{name}.{key}": values.numpy() for key, values in part.state_dict().items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: np.ascontiguousarray(values) for name, values in tensors.items()}, folder / "model.safetensors")
    return siglip, resampler, model


def in_windows(rows: int, columns: int, rounds: int) -> np.ndarray:
    """The numbers of patches, four by four of a window of two rows of two; in two rounds windows of windows, too."""
    if rounds == 0:
        return np.arange(rows * columns)
    outer = in_windows(rows // 2, columns // 2, rounds - 1)
    top, left = (2 * (outer // (columns // 2)), 2 * (outer % (columns // 2)))
    return np.stack([(top + y) * columns + left + x for y in (0, 1) for x in (0, 1)], 1).reshape(-1)


def _mask(capacity: int, live: int) -> np.ndarray:
    return np.where(np.arange(capacity) < live, 0.0, HIDDEN).reshape(1, 1, 1, -1)


def inputs_4_6(pixels: np.ndarray, rows: int, columns: int, mode: str) -> list[np.ndarray]:
    """Inputs of a graph for a strip of an image's patches, [1, 3, 6, patches * 6], row by row."""
    count = rows * columns
    order = in_windows(rows, columns, 2 if mode == "16x" else 1)
    strip = np.zeros((1, 3, 6, CAPACITY, 6), np.float32)
    strip[:, :, :, :count] = pixels.reshape(1, 3, 6, count, 6)[:, :, :, order]
    ids = np.zeros((1, CAPACITY), np.int32)
    ids[0, :count] = positions_of(rows, columns, 8)[order]
    found = [strip.reshape(1, 3, 6, -1), ids, _mask(CAPACITY, count)]
    return [*found, _mask(CAPACITY // 4, count // 4)] if mode == "16x" else found


def inputs_4_5(images: list[np.ndarray], frames: int, times: list[int | None]) -> list[np.ndarray]:
    """Inputs of a graph for so many frames, of images [3, height, width]."""
    strips, ids = np.zeros((frames, 3, 6, CAPACITY, 6), np.float32), np.zeros((frames, CAPACITY), np.int32)
    masks = np.full((frames, 1, 1, CAPACITY), HIDDEN)
    places, moments = np.zeros((frames, CAPACITY, _WIDTH)), np.zeros((frames, CAPACITY, _WIDTH))
    for index, (image, time) in enumerate(zip(images, times, strict=True)):
        rows, columns = (extent // 6 for extent in image.shape[1:])
        count = rows * columns
        cells = image.reshape(3, rows, 6, columns, 6).transpose(0, 2, 1, 3, 4)
        strips[index, :, :, :count] = cells.reshape(3, 6, count, 6)
        ids[index, :count] = positions_of(rows, columns, 8)
        masks[index, ..., :count] = 0
        places[index, :count] = places_of(rows, columns, _WIDTH)
        if time is not None:
            moments[index] = waves(np.array([time]), _WIDTH)
    key_mask = masks.reshape(1, 1, 1, -1)
    return [strips.reshape(frames, 3, 6, -1), ids, masks, places, *([moments] if frames > 1 else []), key_mask]
