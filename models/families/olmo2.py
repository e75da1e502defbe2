"""OLMo 2, 1B to 32B: norms after attention and MLP, and over all heads of q and of k."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family, Gguf
from ..model_config import ModelConfig
from .shared.dense import KEYS, NORMS_BEHIND, TENSORS, TINY
from .shared.gguf import GGUF_NORMS


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    bias, window = config.flags["attention_bias"], config.windows[layer]
    attention = Attention(
        wide_norm=True,
        qkv_bias=bias,
        out_bias=bias,
        in_norm=False,
        out_norm=True,
        window=window,
        local_rope=window is not None,
    )
    return attention, Mlp(in_norm=False, out_norm=True)


FAMILY = Family(
    model_type="olmo2",
    architecture="Olmo2ForCausalLM",
    title="OLMo 2",
    models="OLMo 2 1B, 7B, 13B, 32B",
    has="norms after attention and MLP, none before; norms over all heads of q and k; `attention_bias` on q, k, v, o",
    keys=(
        *KEYS,
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=2048),
        Key("attention_bias", "flag", absent=False),
    ),
    layer=_layer,
    tensors={**TENSORS, **NORMS_BEHIND},
    gguf=Gguf(arch="olmo2", names=GGUF_NORMS),
    tiny={**TINY, "head_dim": 64, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "attention_bias": True},
    other_values=True,
)
