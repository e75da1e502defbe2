"""A tiny Fun-Audio-Chat of random weights, what transformers and PyTorch make of it, and its package."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite.models.common.errors import CompileWarning
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")
from oracle import random_weights
from safetensors.torch import save_file
from tiny_sounds import TEXT as SMALL
from tiny_sounds import WHISPER
from torch.nn import functional

NAME, WIDTH, CHUNK, ROWS, HIDDEN = "funaudiochat-8b", 128, 16, 64, -65504.0
TEXT = {**SMALL, "head_dim": 64, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6}
# Chunks of 40 frames, which become 20 rows and then 10 codes, five of which are a row of a prompt.
AUDIO = {**WHISPER, "n_window": 20, "output_dim": WIDTH, "group_size": 5, "codebook_size": 67}
CRQ = {
    **TEXT, "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128, "head_dim": 32, "vocab_size": 9,
}  # fmt: skip
CHUNKS, FRAMES = 3, 40
# The bound of docs/numerics.md for float32; the others are those of the encoder of Qwen3-ASR.
QUANTS = [("float32", None), ("float16", 5e-3), ("w8a8h1_sefp", 0.1)]


class Oracle:
    def __init__(self) -> None:
        torch.manual_seed(5)
        self.language = transformers.Qwen3ForCausalLM(
            transformers.Qwen3Config(**TEXT, tie_word_embeddings=False, attn_implementation="eager")
        ).eval()
        whisper = transformers.WhisperConfig(
            **{key: value for key, value in AUDIO.items() if "encoder" in key or key in ("d_model", "num_mel_bins")},
            max_source_positions=AUDIO["n_window"],
            attn_implementation="eager",
        )
        # Its table of positions is that of a chunk, sines and cosines.
        self.sound = transformers.models.whisper.modeling_whisper.WhisperEncoder(whisper).eval()
        self.proj = torch.nn.Linear(AUDIO["d_model"], WIDTH)
        self.codes = torch.nn.Embedding(AUDIO["codebook_size"], WIDTH)
        self.of_codes, self.of_sound = (torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.crq = transformers.Qwen3Model(transformers.Qwen3Config(**CRQ, attn_implementation="eager")).eval()
        self.pre = torch.nn.Linear(WIDTH, AUDIO["group_size"] * WIDTH)
        self.into = torch.nn.Linear(WIDTH, CRQ["hidden_size"], bias=False)
        self.out_of = torch.nn.Linear(CRQ["hidden_size"], WIDTH, bias=False)
        table = self.sound.embed_positions.weight.clone()
        for model in (self.language, self.sound, self.crq):
            random_weights(model)
        with torch.no_grad():
            self.sound.embed_positions.weight.copy_(table)

    def save(self, folder: Path, **changes: object) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            "architectures": ["FunAudioChatForConditionalGeneration"],
            "model_type": "funaudiochat",
            "text_config": {"model_type": "qwen3", **TEXT},
            "audio_config": {**AUDIO, "crq_transformer_config": CRQ, **changes},
        }
        (folder / "config.json").write_text(json.dumps(config))
        names = {"layer_norm.": "ln_post."}
        tensors = {f"language_model.{name}": tensor for name, tensor in self.language.state_dict().items()}
        for name, tensor in self.sound.state_dict().items():
            if not name.startswith("embed_positions"):
                new = next((names[old] + name.removeprefix(old) for old in names if name.startswith(old)), name)
                tensors[f"continuous_audio_tower.{new}"] = tensor
        tensors |= {f"continuous_audio_tower.proj.{name}": tensor for name, tensor in self.proj.state_dict().items()}
        tensors["audio_tower.embed_tokens.weight"] = self.codes.weight.detach()
        tensors["audio_tower.output_matching.weight"] = self.of_codes.weight.detach()
        tensors["audio_tower.continual_output_matching.weight"] = self.of_sound.weight.detach()
        parts = {
            "crq_transformer": self.crq,
            "pre_matching": self.pre,
            "input_matching": self.into,
            "output_matching": self.out_of,
        }
        for part, module in parts.items():
            for name, tensor in module.state_dict().items():
                tensors[f"audio_invert_tower.{part}.{name}"] = tensor
        save_file(tensors, folder / "model.safetensors")
        return folder

    def hear(self, chunks: list[torch.Tensor]) -> torch.Tensor:
        """Chunks [mel, frames], each alone, as far as it goes -> rows of a prompt, of whole groups of five codes."""
        found = []
        for chunk in chunks:
            part = self.sound
            x = functional.gelu(part.conv2(functional.gelu(part.conv1(chunk[None])))).mT
            x = x + part.embed_positions.weight[: x.shape[1]]
            for layer in part.layers:
                x = layer(x, None)
                x = x[0] if isinstance(x, tuple) else x
            pairs = x[0][: x.shape[1] // 2 * 2].reshape(-1, 2, x.shape[2]).mean(1)
            found.append(self.proj(part.layer_norm(pairs)))
        return torch.cat(found)


def compiled(checkpoint: Path, output: Path, **options: object) -> Path:
    sizes = {"name": NAME, "prefill_length": CHUNK, "context_length": ROWS, "audio_frames": CHUNKS * FRAMES}
    with pytest.warns(CompileWarning, match="no tokenizer"):
        compile_checkpoint(CompileOptions(checkpoint=checkpoint, output=output, **{**sizes, **options}))
    return output


def run(module: rt.Module, **inputs: np.ndarray) -> list[np.ndarray]:
    for name, value in inputs.items():
        module.set_input(name, np.ascontiguousarray(value, module.get_input_info(name).dtype))
    module.run(True)
    names = [module.get_output_name(i) for i in range(module.get_num_outputs())]
    return [module.get_output(name).numpy().astype(np.float32) for name in names]


def ports(module: rt.Module) -> dict[str, tuple[int, ...]]:
    names = [module.get_input_name(i) for i in range(module.get_num_inputs())]
    return {name: tuple(module.get_input_info(name).shape) for name in names}
