"""MiniCPM 1, 2 and 4: Llama's layers with three factors, which go into numbers that a package has anyway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key, Only, positive
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.dense import KEYS, TENSORS, TINY


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias = config.flags["attention_bias"]
    return Attention(qkv_bias=bias, out_bias=bias), Mlp()


def _all_layers(values: Mapping[str, Any]) -> float:
    return float(values["num_hidden_layers"] ** 0.5)


def _hidden(values: Mapping[str, Any]) -> int:
    return int(values["hidden_size"])


def factors(embedding: float, depth: float, base: int) -> tuple[Key, ...]:
    """The keys of the factors, with these defaults."""
    return (
        Key("scale_emb", "number", absent=embedding),
        Key("scale_depth", "number", absent=depth, null=_all_layers),
        Key("dim_model_base", absent=base, null=_hidden),
    )


def folded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """As those of Granite: hidden states are divided by what multiplies the results of blocks."""
    residual = values["scale_depth"] / values["num_hidden_layers"] ** 0.5
    return {
        "embedding_scale": values["scale_emb"] / residual,
        "rms_norm_eps": values["rms_norm_eps"] / residual**2,
        "logit_scale": values["dim_model_base"] / values["hidden_size"],
    }


def _of_gguf(get: Callable[[str], Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    depth, width = (positive(key, get(key)) for key in ("residual_scale", "logit_scale"))
    return {
        "scale_depth": round(depth * config["num_hidden_layers"] ** 0.5, 6),  # the file has 32 bits of it
        "dim_model_base": round(config["hidden_size"] / width),
    }


TINY_FACTORS: Mapping[str, float] = {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 96}
FAMILY = Family(
    model_type="minicpm",
    architecture="MiniCPMForCausalLM",
    title="MiniCPM",
    models="MiniCPM 1B, 2B, MiniCPM4 and 4.1 0.5B, 8B",
    has="`scale_emb`, `scale_depth` and `dim_model_base`; `attention_bias` on q, k, v, o",
    keys=(
        *KEYS,
        Key("max_position_embeddings", absent=2048),
        Key("tie_word_embeddings", "flag", absent=True),
        Key("attention_bias", "flag", absent=False),
        *factors(1, 1, 1),
        Only("num_experts", 0),
        Only("sparse_config", None),
    ),
    layer=_layer,
    tensors=TENSORS,
    folded=folded,
    gguf=Gguf(
        arch="minicpm",
        interleaved=True,
        keys={"embedding_scale": "scale_emb"},
        also=("residual_scale", "logit_scale"),
        derived=_of_gguf,
    ),
    tiny={**TINY, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, **TINY_FACTORS},
)
