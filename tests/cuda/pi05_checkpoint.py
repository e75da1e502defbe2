"""A checkpoint of π0.5 of random numbers, which has its sizes from its tensors."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

CONFIG = {
    "type": "pi05", "chunk_size": 50, "max_action_dim": 32, "tokenizer_max_length": 20, "image_resolution": [112, 112],
    "input_features": {"observation.images.top": {"type": "VISUAL"}}, "empty_cameras": 1,
}  # fmt: skip
LAYERS, HEADS, HEAD_DIM, VOCABULARY = 2, 4, 256, 331
EYES, PATCHES = (1152, 2152), 64  # hidden and intermediate size
GEMMA, EXPERT = (512, 768), (256, 512)

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def linear(name: str, *shape: int) -> Shapes:
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]


def siglip() -> Shapes:
    hidden, inner = EYES
    yield from linear("embeddings.patch_embedding", hidden, 3, 14, 14)
    yield "embeddings.position_embedding.weight", (PATCHES, hidden)
    yield from linear("post_layernorm", hidden)
    for layer in (f"encoder.layers.{number}" for number in range(LAYERS)):
        for norm in ("layer_norm1", "layer_norm2"):
            yield from linear(f"{layer}.{norm}", hidden)
        for part in "qkv":
            yield from linear(f"{layer}.self_attn.{part}_proj", hidden, hidden)
        yield from linear(f"{layer}.self_attn.out_proj", hidden, hidden)
        yield from linear(f"{layer}.mlp.fc1", inner, hidden)
        yield from linear(f"{layer}.mlp.fc2", hidden, inner)


def gemma(hidden: int, inner: int, conditioned: bool) -> Shapes:
    def norm(name: str) -> Shapes:
        return linear(f"{name}.dense", 3 * hidden, hidden) if conditioned else iter([(f"{name}.weight", (hidden,))])

    yield from norm("norm")
    for layer in (f"layers.{number}" for number in range(LAYERS)):
        yield from norm(f"{layer}.input_layernorm")
        yield from norm(f"{layer}.post_attention_layernorm")
        for part, heads in (("q", HEADS), ("k", 1), ("v", 1)):
            yield f"{layer}.self_attn.{part}_proj.weight", (heads * HEAD_DIM, hidden)
        yield f"{layer}.self_attn.o_proj.weight", (hidden, HEADS * HEAD_DIM)
        for part in ("gate", "up"):
            yield f"{layer}.mlp.{part}_proj.weight", (inner, hidden)
        yield f"{layer}.mlp.down_proj.weight", (hidden, inner)


def shapes() -> Shapes:
    models, hidden, actions = "paligemma_with_expert.", EXPERT[0], CONFIG["max_action_dim"]
    yield f"{models}paligemma.lm_head.weight", (VOCABULARY, GEMMA[0])
    yield from linear(f"{models}paligemma.model.multi_modal_projector.linear", GEMMA[0], EYES[0])
    for module, parts in (
        ("paligemma.model.vision_tower", siglip()),
        ("paligemma.model.language_model", gemma(*GEMMA, conditioned=False)),
        ("gemma_expert.model", gemma(*EXPERT, conditioned=True)),
    ):
        yield from ((f"{models}{module}.{name}", shape) for name, shape in parts)
    yield from linear("action_in_proj", hidden, actions)
    yield from linear("action_out_proj", actions, hidden)
    for name in ("time_mlp_in", "time_mlp_out"):
        yield from linear(name, hidden, hidden)


def write(folder: Path) -> None:
    rng = np.random.default_rng(7)
    tensors = {
        f"model.{name}": (rng.standard_normal(shape) * (np.prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.1))
        for name, shape in shapes()
    }
    save_file({name: values.astype(np.float32) for name, values in tensors.items()}, folder / "model.safetensors")
