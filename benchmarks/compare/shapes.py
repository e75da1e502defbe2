"""The shapes that are measured, and what a prompt costs whatever runs it."""

import json
from pathlib import Path

_FOLDER = Path(__file__).parent.parent / "shapes"

# Of Qwen3.
SHAPES = {
    # No model: all sides in a minute, to see that they work.
    "tiny": {"hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 1024},
    "0.6B": {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "intermediate_size": 3072},
    "1.7B": {"hidden_size": 2048, "num_hidden_layers": 28, "num_attention_heads": 16, "intermediate_size": 6144},
    "4B": {"hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32, "intermediate_size": 9728},
    "8B": {"hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32, "intermediate_size": 12288},
}
KV_HEADS, HEAD_DIM, VOCAB = 8, 128, 151936
# Of ../shapes, cut to so many layers: the whole does not fit into memory. Rates are per layer, and the head is on top.
CUT = {"qwen3-30b-a3b-6l": ("qwen3-30b-a3b", 6)}
# Of other families, from ../shapes: compared with llama.cpp and transformers.
OTHERS = ("llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b", "mistral-7b-v0.3", "qwen2.5-1.5b", "qwen2.5-7b", *CUT)
LARGE = ("8B", "llama-3.1-8b", "mistral-7b-v0.3", "qwen2.5-7b", *CUT)  # 16-bit weights do not fit into memory


def config_of(shape: str) -> dict:
    """As config.json of a checkpoint."""
    if shape in CUT:
        whole, layers = CUT[shape]
        return json.loads((_FOLDER / whole / "config.json").read_text()) | {"num_hidden_layers": layers}
    if shape in OTHERS:
        return json.loads((_FOLDER / shape / "config.json").read_text())
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "max_position_embeddings": 40960,
        "hidden_act": "silu",
        "tie_word_embeddings": shape != "8B",
        **SHAPES[shape],
    }


def linear_operations(shape: str, tokens: int) -> int:
    """Of all Linear layers for one prompt; a multiply-add counts as two.

    The head, and what follows attention in the last block, run for the last token only.
    """
    fields = config_of(shape)
    hidden, heads = fields["hidden_size"], fields["num_attention_heads"]
    if "num_experts" in fields:
        mlp = hidden * (3 * fields["moe_intermediate_size"] * fields["num_experts_per_tok"] + fields["num_experts"])
    else:
        mlp = hidden * 3 * fields["intermediate_size"]
    head_dim = head_dim_of(fields)
    qkv = hidden * head_dim * (heads + 2 * fields["num_key_value_heads"])
    rest = hidden * head_dim * heads + mlp
    layers = fields["num_hidden_layers"]
    return 2 * (tokens * (qkv * layers + rest * (layers - 1)) + rest + hidden * fields["vocab_size"])


def cache_row_bytes(shape: str, element_bytes: int = 2) -> int:
    """K and V of one token in all layers."""
    fields = config_of(shape)
    return fields["num_hidden_layers"] * 2 * fields["num_key_value_heads"] * head_dim_of(fields) * element_bytes


def head_dim_of(fields: dict) -> int:
    """Of a config.json."""
    return fields.get("head_dim") or fields["hidden_size"] // fields["num_attention_heads"]


def title_of(shape: str) -> str:
    """What tables and folders call a shape."""
    return shape if shape in OTHERS else f"Qwen3-{shape}"
