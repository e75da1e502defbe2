"""Random Whisper models of transformers, their packages, a sound, and the bound of float32 graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tcim_lite.llm import Package
from tcim_lite.models.common.errors import CompileWarning
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")

SIZES = {
    "even": {
        "d_model": 128,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 256,
        "decoder_ffn_dim": 256,
        "vocab_size": 320,
        "max_source_positions": 50,
        "max_target_positions": 64,
    },
    "odd": {
        "d_model": 30,
        "encoder_layers": 1,
        "decoder_layers": 3,
        "encoder_attention_heads": 5,
        "decoder_attention_heads": 3,
        "encoder_ffn_dim": 47,
        "decoder_ffn_dim": 59,
        "vocab_size": 131,
        "num_mel_bins": 13,
        "max_source_positions": 37,
        "max_target_positions": 29,
        "tie_word_embeddings": False,
    },
}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def random_model(**sizes):
    torch.manual_seed(3)
    config = transformers.WhisperConfig(**{**SIZES["even"], **sizes}, **SPECIAL, attn_implementation="eager")
    model = transformers.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.normal_(std=0.1)
            if "norm.weight" in name:
                tensor += 1
            tensor.copy_(tensor.half())
    return model


def compiled(checkpoint: Path, out: Path, **options) -> Package:
    with pytest.warns(CompileWarning, match="no tokenizer"):
        compile_checkpoint(CompileOptions(checkpoint=checkpoint, output=out, **options))
    return Package.open(out)


def sound(config) -> np.ndarray:
    shape = (1, config.num_mel_bins, 2 * config.max_source_positions)
    return np.random.default_rng(5).standard_normal(shape).astype(np.float16).astype(np.float32)


def bound(config) -> float:
    """Of float32 graphs, as in oracle.py; two norms and three sums more a layer are within its factor."""
    widest = max(config.encoder_ffn_dim, config.decoder_ffn_dim, config.d_model)
    return 64 * 2**-24 * (widest * (config.encoder_layers + config.decoder_layers)) ** 0.5
