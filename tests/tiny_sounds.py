"""Configs of encoders of sounds, and of a language model behind them, as small as their graphs allow."""

from __future__ import annotations

from typing import Any

GEMMA4 = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "subsampling_conv_channels": [128, 8],
    "output_proj_dims": 96,
}  # fmt: skip
GLM_ASR = {
    "num_mel_bins": 20, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 64, "intermediate_size": 256,
}  # fmt: skip
WHISPER = {
    "num_mel_bins": 20, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 192, "d_model": 128,
}  # fmt: skip
QWEN3 = {**WHISPER, "output_dim": 192, "n_window": 50, "n_window_infer": 200, "downsample_hidden_size": 64}

TEXT: dict[str, Any] = {
    "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 331, "max_position_embeddings": 512,
}  # fmt: skip
