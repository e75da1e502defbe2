"""A tiny pi0.5 of random weights, as LeRobot stores it, and what PyTorch makes of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")
from oracle import random_weights
from safetensors.torch import save_file
from torch.nn import functional

LAYERS, HEADS, HEAD_DIM, VOCABULARY = 2, 8, 16, 331
SIDE, CHUNK, ACTIONS, TEXT = 28, 6, 10, 9  # an image of four patches
EYES = {"hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2, "num_attention_heads": 16}
CONFIG = {
    "type": "pi05",
    "chunk_size": CHUNK,
    "max_action_dim": ACTIONS,
    "tokenizer_max_length": TEXT,
    "image_resolution": [SIDE, SIDE],
    "empty_cameras": 1,
    "input_features": {
        "observation.images.top": {"type": "VISUAL", "shape": [3, 40, 40]},
        "observation.state": {"type": "STATE", "shape": [6]},
    },
    "output_features": {"action": {"type": "ACTION", "shape": [6]}},
}


def gemma(hidden: int, inner: int) -> transformers.GemmaModel:
    config = transformers.GemmaConfig(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=1,
        head_dim=HEAD_DIM,
        vocab_size=VOCABULARY,
        attn_implementation="eager",
    )
    return transformers.GemmaModel(config).eval()


class Oracle(torch.nn.Module):
    """The modules under LeRobot's names, in float32."""

    def __init__(self, *, side: int = SIDE, chunk: int = CHUNK, actions: int = ACTIONS) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.chunk, self.actions = chunk, actions
        vision = transformers.SiglipVisionConfig(
            **EYES, image_size=side, patch_size=14, attn_implementation="eager", vision_use_head=False
        )
        self.eyes = transformers.SiglipVisionModel(vision).eval()
        self.projector = torch.nn.Linear(EYES["hidden_size"], 128)
        self.language, self.expert = gemma(128, 192), gemma(64, 128)
        self.conditions = torch.nn.ModuleList(torch.nn.Linear(64, 3 * 64) for _ in range(2 * LAYERS + 1))
        self.into, self.out_of = torch.nn.Linear(actions, 64), torch.nn.Linear(64, actions)
        self.time_in, self.time_out = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
        random_weights(self)

    def tensors(self) -> dict[str, torch.Tensor]:
        """By the names of a checkpoint; the embedding under that of the head alone, as LeRobot's writer leaves it."""
        prefix = "model.paligemma_with_expert."
        found = {"paligemma.lm_head.weight": self.language.embed_tokens.weight}
        found |= {f"paligemma.model.vision_tower.{name}": part for name, part in self.eyes.state_dict().items()}
        projector = self.projector.state_dict().items()
        found |= {f"paligemma.model.multi_modal_projector.linear.{name}": part for name, part in projector}
        for model, place in ((self.language, "paligemma.model.language_model"), (self.expert, "gemma_expert.model")):
            unread = ("embed_tokens", "norm", "layernorm") if model is self.expert else ("embed_tokens",)
            for name, part in model.state_dict().items():
                if not any(word in name for word in unread):
                    found[f"{place}.{name}"] = part
        norms = [
            f"layers.{n}.{name}" for n in range(LAYERS) for name in ("input_layernorm", "post_attention_layernorm")
        ]
        for name, linear in zip([*norms, "norm"], self.conditions, strict=True):
            found |= {f"gemma_expert.model.{name}.dense.{what}": part for what, part in linear.state_dict().items()}
        found = {prefix + name: part for name, part in found.items()}
        around = {"action_in_proj": self.into, "action_out_proj": self.out_of}
        around |= {"time_mlp_in": self.time_in, "time_mlp_out": self.time_out}
        for name, linear in around.items():
            found |= {f"model.{name}.{what}": part for what, part in linear.state_dict().items()}
        return found

    def save(self, folder: Path, named: Callable[[str], str] = str, **changes: object) -> Path:
        """Writes a checkpoint; `named` says what else its tensors are called."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
        tensors = {named(name): part.detach().clone().contiguous() for name, part in self.tensors().items()}
        save_file(tensors, folder / "model.safetensors")
        return folder

    def see(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.projector(self.eyes(pixels).last_hidden_state)

    def read(self, rows: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, transformers.DynamicCache]:
        """Hidden states and caches of a prompt; the mask [1, 1, T, T] is added to the scores."""
        out = self.language(inputs_embeds=rows, attention_mask=mask, use_cache=True)
        return out.last_hidden_state, out.past_key_values

    def condition(self, waves: torch.Tensor) -> torch.Tensor:
        return functional.silu(self.time_out(functional.silu(self.time_in(waves))))

    def act(self, rows: torch.Tensor, mask: torch.Tensor, caches: object, condition: torch.Tensor) -> torch.Tensor:
        """What the expert makes of rows behind a prompt; the mask is [1, 1, T, prompt + T]."""
        from transformers.models.gemma.modeling_gemma import apply_rotary_pos_emb

        x, before = rows, caches.layers[0].keys.shape[2]
        tables = self.expert.rotary_emb(x, torch.arange(before, before + x.shape[1])[None])

        def normed(x: torch.Tensor, number: int) -> tuple[torch.Tensor, torch.Tensor]:
            scale, shift, gate = self.conditions[number](condition)[:, None].chunk(3, -1)
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + scale) + shift, gate

        for number, layer in enumerate(self.expert.layers):
            y, gate = normed(x, 2 * number)
            parts = (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)
            q, k, v = (part(y).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for part in parts)
            q, k = apply_rotary_pos_emb(q, k, *tables)
            k, v = torch.cat([caches.layers[number].keys, k], 2), torch.cat([caches.layers[number].values, v], 2)
            shares = (q @ k.transpose(2, 3) / math.sqrt(HEAD_DIM) + mask).softmax(-1)
            x = x + layer.self_attn.o_proj((shares @ v).transpose(1, 2).flatten(2)) * gate
            y, gate = normed(x, 2 * number + 1)
            x = x + layer.mlp(y) * gate
        return normed(x, 2 * LAYERS)[0]
