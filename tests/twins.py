"""Families whose classes come with their files: transformers' class that computes the same, and its checkpoints as
theirs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcim_lite.models.families import FAMILIES

if TYPE_CHECKING:
    import torch


def _factors(config: dict[str, Any]) -> dict[str, Any]:
    """MiniCPM's as Granite's."""
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return {
        "embedding_multiplier": config["scale_emb"],
        "residual_multiplier": config["scale_depth"] / config["num_hidden_layers"] ** 0.5,
        "logits_scaling": config["hidden_size"] / config["dim_model_base"],
        "attention_multiplier": width**-0.5,
    }


@dataclass(frozen=True, kw_only=True)
class Twin:
    """`keys` reads more of transformers' config; `names` replaces parts of its tensors' names; `packed` says how many
    parts of q, k and v lie together in one tensor, which is called `qkv` there."""

    family: str
    keys: Callable[[dict[str, Any]], Mapping[str, Any]] = lambda config: {}
    names: Mapping[str, str] = field(default_factory=dict)
    packed: Callable[[dict[str, Any]], int] | None = None

    def save(self, model: torch.nn.Module, family: str, config: dict[str, Any], folder: Path) -> None:
        """Writes a model as a checkpoint of `family`."""
        import torch
        from safetensors.torch import save_file

        tensors = dict(model.state_dict())
        if config.get("tie_word_embeddings"):
            del tensors["lm_head.weight"]
        for name in [name for name in tensors if ".q_proj." in name and self.packed]:
            qkv = [tensors.pop(name.replace(".q_proj.", f".{part}_proj.")) for part in "qkv"]
            groups = [part.reshape(self.packed(config), -1, *part.shape[1:]) for part in qkv]
            tensors[name.replace(".q_proj.", ".qkv.")] = torch.cat(groups, dim=1).flatten(0, 1)
        for name in [name for name in tensors if name.endswith("experts.gate_up_proj")]:  # as files have them, apart
            each = {"gate_up": tensors.pop(name), "down": tensors.pop(name.replace("gate_up_proj", "down_proj"))}
            for expert, (gate_up, down) in enumerate(zip(each["gate_up"], each["down"], strict=True)):
                for part, tensor in zip(("gate", "up", "down"), (*gate_up.chunk(2), down), strict=True):
                    tensors[name.replace("gate_up_proj", f"{expert}.{part}_proj.weight")] = tensor
        for old, new in self.names.items():
            tensors = {re.sub(old, new, name): tensor for name, tensor in tensors.items()}
        folder.mkdir(parents=True)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
        record = FAMILIES[family]
        own = {record.spelled.get(key, key): value for key, value in config.items()}
        own |= {"architectures": [record.architecture], "model_type": family}
        (folder / "config.json").write_text(json.dumps(own))


TWINS = {
    "bailing_moe_v2": Twin(
        family="glm4_moe",
        keys=lambda config: {
            "attention_bias": config["use_qkv_bias"],
            "use_qk_norm": config.get("use_qk_norm", True),
            "n_routed_experts": config["num_experts"],
            "n_shared_experts": config.get("num_shared_experts", 1),
        },
        names={
            "embed_tokens": "word_embeddings",
            "self_attn.qkv": "attention.query_key_value",
            "self_attn.o_proj": "attention.dense",
            "self_attn.q_norm": "attention.query_layernorm",
            "self_attn.k_norm": "attention.key_layernorm",
            "e_score_correction_bias": "expert_bias",
        },
        packed=lambda config: 1,
    ),
    "chatglm": Twin(
        family="glm",
        keys=lambda config: {
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4 * config["rope_ratio"]},
        },
        names={
            "^model.embed_tokens": "transformer.embedding.word_embeddings",
            "^model.layers": "transformer.encoder.layers",
            "^model.norm": "transformer.encoder.final_layernorm",
            "^lm_head": "transformer.output_layer",
            "self_attn.qkv": "self_attention.query_key_value",
            "self_attn.o_proj": "self_attention.dense",
            "gate_up_proj": "dense_h_to_4h",
            "down_proj": "dense_4h_to_h",
        },
        packed=lambda config: 1,
    ),
    "exaone": Twin(
        family="llama",
        names={
            "^model.embed_tokens": "transformer.wte",
            "^model.layers": "transformer.h",
            "^model.norm": "transformer.ln_f",
            "input_layernorm": "ln_1",
            "post_attention_layernorm": "ln_2",
            "self_attn.o_proj": "attn.attention.out_proj",
            "self_attn": "attn.attention",
            "gate_proj": "c_fc_0",
            "up_proj": "c_fc_1",
            "down_proj": "c_proj",
        },
    ),
    "internlm2": Twin(
        family="llama",
        keys=lambda config: {"attention_bias": config["bias"]},
        names={
            "embed_tokens": "tok_embeddings",
            "^lm_head": "output",
            "input_layernorm": "attention_norm",
            "post_attention_layernorm": "ffn_norm",
            "self_attn.qkv": "attention.wqkv",
            "self_attn.o_proj": "attention.wo",
            "mlp.gate_proj": "feed_forward.w1",
            "mlp.up_proj": "feed_forward.w3",
            "mlp.down_proj": "feed_forward.w2",
        },
        packed=lambda config: config["num_key_value_heads"],
    ),
    "mimo": Twin(family="qwen2"),
    "minicpm": Twin(family="granite", keys=_factors),
}


def spelled_alike(family: str, shape: dict[str, Any]) -> dict[str, Any]:
    """A config in the spelling of transformers; of two names of a key the latter counts."""
    names = {theirs: name for name, theirs in FAMILIES[family].spelled.items()}
    return {names.get(key, key): value for key, value in shape.items()}
