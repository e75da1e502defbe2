"""EXAONE 3.0, 3.5 and Deep: Llama's layers under names of their own."""

from __future__ import annotations

from ..blocks import Attention, Block, Mlp
from ..common.config_keys import Key
from ..family import Family, Gguf, Tensors, plain
from ..model_config import ModelConfig
from ..weights import roles
from .shared.dense import KEYS, TINY

_LAYER = "transformer.h.{layer}"
_ATTENTION, _MLP = f"{_LAYER}.attn.attention", f"{_LAYER}.mlp"


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    return Attention(), Mlp()


FAMILY = Family(
    model_type="exaone",
    architecture="ExaoneForCausalLM",
    title="EXAONE 3",
    models="EXAONE 3.0, 3.5 and Deep, 2.4B, 7.8B, 32B",
    has="as Llama",
    keys=(
        *KEYS,
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=2048),
        Key("tie_word_embeddings", "flag", absent=True),
    ),
    spelled={
        "num_hidden_layers": "num_layers",
        "rms_norm_eps": "layer_norm_epsilon",
        "hidden_act": "activation_function",
    },
    layer=_layer,
    tensors={
        roles.EMBEDDING: plain("transformer.wte.weight"),
        roles.ATTENTION_NORM: plain(f"{_LAYER}.ln_1.weight"),
        roles.QKV: Tensors("stack", tuple(f"{_ATTENTION}.{part}_proj.weight" for part in "qkv")),
        roles.ATTENTION_OUT: plain(f"{_ATTENTION}.out_proj.weight"),
        roles.MLP_NORM: plain(f"{_LAYER}.ln_2.weight"),
        roles.GATE_UP: Tensors("alternate", (f"{_MLP}.c_fc_0.weight", f"{_MLP}.c_fc_1.weight")),
        roles.DOWN: plain(f"{_MLP}.c_proj.weight"),
        roles.FINAL_NORM: plain("transformer.ln_f.weight"),
        roles.HEAD: Tensors("tied", ("lm_head.weight",)),
    },
    gguf=Gguf(
        arch="exaone",
        layers="transformer.h",
        also=("attention.layer_norm_epsilon",),
        names={
            "token_embd": "transformer.wte",
            "output_norm": "transformer.ln_f",
            "attn_norm": "ln_1",
            **{f"attn_{part}": f"attn.attention.{part}_proj" for part in "qkv"},
            "attn_output": "attn.attention.out_proj",
            "ffn_norm": "ln_2",
            "ffn_gate": "mlp.c_fc_0",
            "ffn_up": "mlp.c_fc_1",
            "ffn_down": "mlp.c_proj",
        },
    ),
    tiny={
        **{key: value for key, value in TINY.items() if key not in ("num_hidden_layers", "hidden_act")},
        "num_layers": TINY["num_hidden_layers"],
        "activation_function": "silu",
        "layer_norm_epsilon": 1e-5,
        "rope_theta": 1e6,
    },
)
