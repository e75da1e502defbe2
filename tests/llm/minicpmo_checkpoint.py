"""Random checkpoints of MiniCPM-o 2.6, whose parts are models of transformers and blocks that are written here.

Its classes come with its checkpoint. A Qwen2 and a Llama are those of transformers, and so are the layers of Whisper's
encoder; the tower is that of MiniCPM-V. Codes are those of finite scalar quantisation ("Finite Scalar Quantization:
VQ-VAE Made Simple"), two books of a group adding up; what follows are blocks of ConvNeXt and the vocoder Vocos.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
import transformers
from minicpm import Resampler, Siglip
from oracle import random_weights
from safetensors.torch import save_file
from tiny_sounds import WHISPER
from torch.nn import functional

from tcim_lite.models.towers.minicpm import MINICPM_O_2_6

WIDTH, QUERIES, VOCABULARY = 256, 8, 331
CODES, TEXT_TOKENS, HEADS = 67, 97, 4
LANGUAGE = {
    "hidden_size": WIDTH,
    "intermediate_size": 320,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
}
SPEECH = {
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "max_position_embeddings": 4096,
}
AUDIO = {**WHISPER, "max_source_positions": 40}
TOWER = MINICPM_O_2_6.tiny
_BINS, _BLOCKS = 10, 2


class Projector(torch.nn.Module):
    """Two Linears."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.linear1, self.linear2 = torch.nn.Linear(inputs, outputs), torch.nn.Linear(outputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear2(torch.relu(self.linear1(x)))


class _Block(torch.nn.Module):
    def __init__(self, width: int, inner: int, dilation: int, factors: str):
        super().__init__()
        self.dwconv = torch.nn.Conv1d(width, width, 7, padding=3 * dilation, dilation=dilation, groups=width)
        self.norm = torch.nn.LayerNorm(width, eps=1e-6)
        self.pwconv1, self.pwconv2 = torch.nn.Linear(width, inner), torch.nn.Linear(inner, width)
        self.factors = factors
        setattr(self, factors, torch.nn.Parameter(torch.randn(width)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.pwconv2(functional.gelu(self.pwconv1(self.norm(self.dwconv(x).mT))))
        return x + (y * getattr(self, self.factors)).mT


class Dvae(torch.nn.Module):
    """Codes [1, 4, N] -> mel features [1, bins, 2 N]."""

    def __init__(self, width: int = 16, inner: int = 12):
        super().__init__()
        self.coef = torch.nn.Parameter(torch.rand(1, _BINS, 1) + 0.5)
        self.projections = torch.nn.ModuleList(torch.nn.Linear(4, width) for _ in range(2))
        self.conv_in = torch.nn.Sequential(
            torch.nn.Conv1d(width, 8, 3, padding=1), torch.nn.GELU(), torch.nn.Conv1d(8, inner, 3, padding=1)
        )
        self.blocks = torch.nn.ModuleList(_Block(inner, 4 * inner, 2, "coef") for _ in range(_BLOCKS))
        self.conv_out = torch.nn.Conv1d(inner, 14, 1, bias=False)
        self.out_conv = torch.nn.Conv1d(14, _BINS, 3, padding=1, bias=False)

    def tensors(self) -> dict[str, torch.Tensor]:
        names = {
            "projections.0.": "vq_layer.quantizer.rvqs.0.project_out.",
            "projections.1.": "vq_layer.quantizer.rvqs.1.project_out.",
            "conv_in.": "decoder.conv_in.",
            "blocks.": "decoder.decoder_block.",
            "conv_out.": "decoder.conv_out.",
        }
        return renamed(self.state_dict(), names)

    def features(self, codes: torch.Tensor) -> torch.Tensor:
        """[1, 4, N] -> [1, C, N, 2]."""
        digits = torch.stack([codes // 5**place % 5 for place in range(4)], -1)
        values = (digits - 2) / 2 * torch.tensor([1.0, 0.25, 1.0, 0.25])[None, :, None, None]  # of the second book less
        halves = [project(values[:, 2 * i] + values[:, 2 * i + 1]) for i, project in enumerate(self.projections)]
        return torch.stack(halves, -1).permute(0, 2, 1, 3)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        x = self.conv_in(self.features(codes).flatten(2))
        for block in self.blocks:
            x = block(x)
        return self.out_conv(self.conv_out(x)) * self.coef


class Vocos(torch.nn.Module):
    """Mel features [1, bins, N] -> cosine, sine and magnitude [1, n, N]."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.backbone = torch.nn.ModuleDict(
            {
                "embed": torch.nn.Conv1d(_BINS, width, 7, padding=3),
                "norm": torch.nn.LayerNorm(width, eps=1e-6),
                "convnext": torch.nn.ModuleList(_Block(width, 24, 1, "gamma") for _ in range(_BLOCKS)),
                "final_layer_norm": torch.nn.LayerNorm(width, eps=1e-6),
            }
        )
        self.head = torch.nn.ModuleDict({"out": torch.nn.Linear(width, 18)})

    def forward(self, mel: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        part = self.backbone
        x = part["norm"](part["embed"](mel).mT).mT
        for block in part["convnext"]:
            x = block(x)
        loud, turned = self.head["out"](part["final_layer_norm"](x.mT)).mT.chunk(2, 1)
        return torch.cos(turned), torch.sin(turned), torch.exp(loud).clip(max=100)


class Oracle:
    """The parts in float32."""

    def __init__(self, vocabulary: int = VOCABULARY, rows: int = AUDIO["max_source_positions"]) -> None:
        torch.manual_seed(9)
        eager = {"attn_implementation": "eager", "initializer_range": 0.05}
        qwen2 = transformers.Qwen2Config(**{**LANGUAGE, "vocab_size": vocabulary}, tie_word_embeddings=False, **eager)
        self.language = transformers.Qwen2ForCausalLM(qwen2).eval()
        self.speech = transformers.LlamaModel(
            transformers.LlamaConfig(**SPEECH, num_key_value_heads=2, vocab_size=8, **eager)
        ).eval()
        whisper = transformers.WhisperConfig(
            **{**AUDIO, "max_source_positions": rows}, init_std=0.05, attn_implementation="eager"
        )
        self.audio = transformers.models.whisper.modeling_whisper.WhisperEncoder(whisper).eval()
        self.tower, self.resampler = Siglip(TOWER).eval(), Resampler(TOWER["hidden_size"], WIDTH, QUERIES).eval()
        self.speaker, self.heard = Projector(WIDTH, SPEECH["hidden_size"]), Projector(AUDIO["d_model"], WIDTH)
        self.text = torch.nn.Embedding(TEXT_TOKENS, SPEECH["hidden_size"])
        self.codes = torch.nn.ModuleList(torch.nn.Embedding(CODES, SPEECH["hidden_size"]) for _ in range(HEADS))
        self.heads = torch.nn.ModuleList(
            torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(SPEECH["hidden_size"], CODES, bias=False))
            for _ in range(HEADS)
        )
        self.dvae, self.vocos = Dvae().eval(), Vocos().eval()
        for model in (self.language, self.speech, self.audio, self.tower, self.resampler, self.dvae, self.vocos):
            random_weights(model)
        with torch.no_grad():
            for head in self.heads:
                lengths = head.parametrizations.weight.original0
                lengths.copy_(torch.rand_like(lengths) + 0.5)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Under the names of a checkpoint."""
        parts = {
            "llm.": self.language,
            "tts.model.": self.speech,
            "apm.": self.audio,
            "vpm.": self.tower,
            "resampler.": self.resampler,
            "tts.projector.": self.speaker,
            "audio_projection_layer.": self.heard,
            "tts.emb_text.": self.text,
            "tts.emb_code.": self.codes,
            "tts.head_code.": self.heads,
        }
        found = {prefix + name: values for prefix, part in parts.items() for name, values in part.state_dict().items()}
        found |= {f"tts.dvae.{name}": values for name, values in self.dvae.tensors().items()}
        del found["tts.model.embed_tokens.weight"]
        return {name: values.contiguous() for name, values in found.items()}

    def save(self, folder: Path, vocoder: bool = True, **changes: Any) -> Path:
        """Writes config.json and the tensors; `changes` are to config.json."""
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            "model_type": "minicpmo",
            "architectures": ["MiniCPMO"],
            "version": "2.6",
            **LANGUAGE,
            "vocab_size": self.language.config.vocab_size,
            "hidden_act": "silu",
            "query_num": QUERIES,
            "audio_pool_step": 2,
            "vision_config": dict(TOWER),
            "audio_config": {**AUDIO, "max_source_positions": self.audio.config.max_source_positions},
            "tts_config": {**SPEECH, "num_audio_tokens": CODES, "num_text_tokens": TEXT_TOKENS, "llm_dim": WIDTH},
            **changes,
        }
        (folder / "config.json").write_text(json.dumps(config))
        save_file(self.tensors(), folder / "model.safetensors")
        if vocoder:
            (folder / "assets" / "vocos").mkdir(parents=True, exist_ok=True)
            save_file(self.vocos.state_dict(), folder / "assets" / "vocos" / "model.safetensors")
        return folder

    def hear(self, features: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Features [1, mel, 2 S] and a mask [1, 1, S, S] -> rows of a prompt, [S / 2, width]."""
        part = self.audio
        x = functional.gelu(part.conv2(functional.gelu(part.conv1(features)))).mT
        x = x + part.embed_positions.weight[: x.shape[1]]
        for layer in part.layers:
            found = layer(x, mask)
            x = found[0] if isinstance(found, tuple) else found
        x = self.heard(part.layer_norm(x))
        return functional.avg_pool1d(x.mT, 2, 2).mT[0]

    def speak(self, rows: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Rows [1, N, H] that see one another as [1, 1, N, N] says -> logits [N, V, heads]."""
        hidden = self.speech(inputs_embeds=rows, position_ids=positions, attention_mask=mask, use_cache=False)[0]
        return torch.stack([head(hidden[0]) for head in self.heads], -1)


def renamed(tensors: dict[str, torch.Tensor], names: dict[str, str]) -> dict[str, torch.Tensor]:
    """Tensors under other names, by what these begin with."""

    def new(name: str) -> str:
        old = next((old for old in names if name.startswith(old)), None)
        return name if old is None else names[old] + name.removeprefix(old)

    return {new(name): values for name, values in tensors.items()}


assert math.prod((5,) * 4) > CODES
