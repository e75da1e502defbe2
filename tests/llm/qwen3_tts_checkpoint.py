"""Random checkpoints of Qwen3-TTS, whose parts are models of transformers: a Qwen3, and a code predictor of Qwen3-Omni.

transformers has no Qwen3-TTS; its talker is a Qwen3 under other names, and its code predictor is that of Qwen3-Omni
behind a Linear where the talker's rows are longer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from oracle import random_weights
from safetensors.torch import save_file
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as omni

GROUPS, TEXT_WIDTH, TEXT_TOKENS = 5, 192, 97
PREDICTOR = {
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 67,
    "max_position_embeddings": 128,
    "num_code_groups": GROUPS,
    "rms_norm_eps": 1e-6,
}
TALKER = {
    "intermediate_size": 320,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 131,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
}


class Oracle:
    """The parts in float32; `width` is the length of the talker's rows."""

    def __init__(self, width: int) -> None:
        torch.manual_seed(3)
        self.width = width
        rope = {"rope_type": "default", "rope_theta": TALKER["rope_theta"]}
        sizes = {key: value for key, value in TALKER.items() if key != "rope_theta"}
        eager = {"attn_implementation": "eager", "initializer_range": 0.05}
        config = transformers.Qwen3Config(
            **sizes, hidden_size=width, rope_parameters=rope, tie_word_embeddings=False, **eager
        )
        self.talker = transformers.Qwen3ForCausalLM(config).eval()
        config = omni.Qwen3OmniMoeTalkerCodePredictorConfig(
            **PREDICTOR, rope_parameters={"rope_type": "default", "rope_theta": 1e4}, **eager
        )
        self.predictor = omni.Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration(config).eval()
        self.text = torch.nn.Embedding(TEXT_TOKENS, TEXT_WIDTH)
        self.projection = torch.nn.Sequential(
            torch.nn.Linear(TEXT_WIDTH, TEXT_WIDTH), torch.nn.SiLU(), torch.nn.Linear(TEXT_WIDTH, width)
        )
        inner = PREDICTOR["hidden_size"]
        self.codes = torch.nn.ModuleList(torch.nn.Embedding(67, width) for _ in range(GROUPS - 1))
        self.entry = torch.nn.Identity() if width == inner else torch.nn.Linear(width, inner)
        for model in (self.talker, self.predictor):
            random_weights(model)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Under the names of a checkpoint."""
        found: dict[str, torch.Tensor] = {}

        def add(prefix: str, module: torch.nn.Module, renamed: dict[str, str] = {}) -> None:  # noqa: B006
            for name, tensor in module.state_dict().items():
                old = next((old for old in renamed if name.startswith(old)), None)
                found[prefix + (name if old is None else renamed[old] + name.removeprefix(old))] = tensor.contiguous()

        add("talker.", self.talker, {"model.embed_tokens": "model.codec_embedding", "lm_head": "codec_head"})
        add("talker.code_predictor.", self.predictor)
        add("talker.code_predictor.model.codec_embedding.", self.codes)
        add("talker.code_predictor.small_to_mtp_projection.", self.entry)
        add("talker.model.text_embedding.", self.text)
        add("talker.text_projection.", self.projection, {"0.": "linear_fc1.", "2.": "linear_fc2."})
        return found

    def save(self, folder: Path, **changes: Any) -> Path:
        """Writes config.json and the tensors; `changes` are to `talker_config`."""
        rope = {"rope_type": "default", "type": "default", "interleaved": True, "mrope_section": [12, 10, 10]}
        talker = {
            **TALKER,
            "hidden_size": self.width,
            "hidden_act": "silu",
            "rope_scaling": rope,
            "num_code_groups": GROUPS,
            "text_hidden_size": TEXT_WIDTH,
            "text_vocab_size": TEXT_TOKENS,
            "code_predictor_config": {**PREDICTOR, "rope_theta": 1e4, "rope_scaling": None},
            **changes,
        }
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            "model_type": "qwen3_tts",
            "architectures": ["Qwen3TTSForConditionalGeneration"],
            "talker_config": talker,
            "tts_model_type": "custom_voice",
        }
        (folder / "config.json").write_text(json.dumps(config))
        save_file(self.tensors(), folder / "model.safetensors")
        return folder
