"""Tiny GGUF files, written with the `gguf` package the way llama.cpp's converter writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_names import EXPERT, gguf_name
from twins import spelled_alike

gguf = pytest.importorskip("gguf", reason="needs the extra [gguf]")

Tensors = dict[str, np.ndarray]


def permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """`permute` of llama.cpp's convert_hf_to_gguf.py."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


LESS_ONE = ("gemma", "gemma2", "gemma3", "nemotron", "qwen35", "qwen35moe", "qwen3next")


def tiled(name: str, tensor: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    """Of linear attention: heads of values as `_reorder_v_heads` of llama.cpp's converter leaves them."""
    keys, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    behind = 2 * keys * config["linear_key_head_dim"]

    def turned(part: np.ndarray) -> np.ndarray:
        return part.reshape(keys, heads // keys, -1, *part.shape[1:]).swapaxes(0, 1).reshape(part.shape)

    if name == "conv1d.weight":
        tensor = tensor.reshape(len(tensor), -1)
    if name in ("conv1d.weight", "in_proj_qkv.weight"):
        return np.concatenate([tensor[:behind], turned(tensor[behind:])])
    if name == "A_log":
        tensor = -np.exp(tensor)
    if name == "out_proj.weight":
        return turned(tensor.T).T
    return tensor if name == "norm.weight" else turned(tensor)


def split_latent(name: str, tensor: np.ndarray, config: Mapping[str, Any]) -> Tensors:
    """As `modify_tensors` of DeepseekV2Model of llama.cpp's converter leaves the keys and values of heads."""
    keys, values = config["qk_nope_head_dim"], config["v_head_dim"]
    heads = tensor.reshape(config["num_attention_heads"], keys + values, -1).astype(np.float32)
    layer = name.split(".")[2]
    return {
        f"blk.{layer}.attn_k_b.weight": heads[:, :keys].swapaxes(1, 2),
        f"blk.{layer}.attn_v_b.weight": heads[:, keys:],
    }


def split_by_heads_of_keys(name: str, tensor: np.ndarray, config: Mapping[str, Any]) -> Tensors:
    """As `modify_tensors` of Qwen3NextModel of llama.cpp's converter leaves q, k, v and gates of linear attention."""
    keys, size = config["linear_num_key_heads"], config["linear_key_head_dim"]
    each = config["linear_num_value_heads"] // keys * config["linear_value_head_dim"]
    heads = tensor.reshape(keys, 2 * size + 2 * each, -1).astype(np.float32)
    q, k, v, z = np.split(heads, [size, 2 * size, 2 * size + each], axis=1)
    layer, width = name.split(".")[2], tensor.shape[1]
    return {
        f"blk.{layer}.attn_qkv.weight": np.concatenate([part.reshape(-1, width) for part in (q, k, v)]),
        f"blk.{layer}.attn_gate.weight": z.reshape(-1, width),
    }


def state_space(name: str, tensor: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    """As `modify_tensors` of Mamba2Model of llama.cpp's converter leaves the tensors of a state-space layer."""
    if name.endswith("A_log"):
        tensor = -np.exp(tensor)
    if name.endswith((".A_log", ".D")):
        return tensor.reshape(-1, 1)
    if name.endswith((".mamba.norm.weight", ".mixer.norm.weight")):
        return tensor.reshape(config.get("mamba_n_groups") or config["n_groups"], -1)
    return tensor.reshape(len(tensor), -1) if name.endswith("conv1d.weight") else tensor


# `undo_permute` of their classes in llama.cpp's convert_hf_to_gguf.py.
INTERLEAVED = (
    "arcee",
    "granite",
    "granitehybrid",
    "granitemoe",
    "nemotron_h_moe",
    "internlm2",
    "llama",
    "minicpm",
    "mistral3",
    "olmo",
    "smollm3",
)


def gguf_tensors(config: Mapping[str, Any], tensors: Tensors, arch: str) -> Tensors:
    """Under the names and in the order of a GGUF file, in fp32."""
    made, experts, norms = {}, {}, {}
    for name, tensor in tensors.items():
        if ".experts." in name:
            layer, part, kind = re.fullmatch(r"\w+\.layers\.(\d+)\.(?:\w+\.)?experts\.\d+\.(\w+)\.(\w+)", name).groups()
            stacked = experts.setdefault(f"blk.{layer}.ffn_{EXPERT[part]}_exps.{kind}", [])
            stacked.append(tensor.astype(np.float32))
            continue
        if ".norms." in name:  # of a head
            norms.setdefault(gguf_name(re.sub(r"\.norms\.\d+", "", name), arch), []).append(tensor.astype(np.float32))
            continue
        if arch == "gptneox" and ".query_key_value." in name:  # which has q, k and v head by head
            heads = tensor.reshape(config["num_attention_heads"], 3, -1, *tensor.shape[1:])
            tensor = heads.swapaxes(0, 1).reshape(tensor.shape)
        if name.endswith(".kv_b_proj.weight"):
            made |= split_latent(name, tensor, config)
            continue
        if name.endswith(".in_proj_qkvz.weight"):
            made |= split_by_heads_of_keys(name, tensor, config)
            continue
        if name.endswith(".shared_mlp.input_linear.weight"):  # as `GraniteMoeModel` of the converter splits it
            layer, halves = name.split(".")[2], np.split(tensor.astype(np.float32), 2)
            experts_or_not = "" if arch == "granitehybrid" and not config.get("num_local_experts") else "_shexp"
            for part, half in zip(("gate", "up"), halves, strict=True):
                made[f"blk.{layer}.ffn_{part}{experts_or_not}.weight"] = half
            continue
        if ".mamba." in name or arch == "nemotron_h_moe":
            tensor = state_space(name, tensor.astype(np.float32), config)
        if name.endswith(".conv.conv.weight"):
            tensor = tensor[:, 0]
        for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if arch in INTERLEAVED and part in name:
                tensor = permuted(tensor, config[heads])
        if arch == "qwen3next" and ".linear_attn." in name:
            tensor = -np.exp(tensor.astype(np.float32)) if name.endswith("A_log") else tensor
            tensor = tensor.reshape(len(tensor), -1) if name.endswith("conv1d.weight") else tensor
        elif ".linear_attn." in name:
            tensor = tiled(name.split(".linear_attn.")[1], tensor.astype(np.float32), config)
        made[gguf_name(name, arch)] = tensor.astype(np.float32).reshape(
            -1 if ".shared_expert_gate." in name or ".moe_statics." in name else tensor.shape
        )
        if arch in LESS_ONE and name.endswith("norm.weight") and "linear_attn" not in name:
            made[gguf_name(name, arch)] += 1
    made |= {name: np.stack(parts) for name, parts in (experts | norms).items()}
    if arch == "gemma4":  # as `Gemma4Model` of the converter writes experts, and what does not turn
        for name in [name for name in made if name.endswith(".ffn_gate_exps.weight")]:
            up = made.pop(name.replace("_gate_", "_up_"))
            made[name.replace("_gate_", "_gate_up_")] = np.concatenate([made.pop(name), up], axis=1)
        half = config["global_head_dim"] // 2
        turned = int(config["global_head_dim"] * 0.25 / 2)
        made["rope_freqs.weight"] = np.array([1.0] * turned + [1e30] * (half - turned), np.float32)
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_type") == "llama3":
        made["rope_freqs.weight"] = llama3_factors(config, rope)
    if rope.get("rope_type") == "longrope":
        for length in ("long", "short"):
            made[f"rope_factors_{length}.weight"] = np.array(rope[f"{length}_factor"], np.float32)
    return made


def llama3_factors(config: Mapping[str, Any], rope: Mapping[str, Any]) -> np.ndarray:
    """As `generate_extra_tensors` of LlamaModel in llama.cpp's convert_hf_to_gguf.py."""
    dim = config["head_dim"]
    freqs = 1.0 / (rope["rope_theta"] ** (np.arange(0, dim, 2, dtype=np.float32) / dim))
    low, high, old = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    factors = []
    for freq in freqs:
        wavelength = 2 * math.pi / freq
        if wavelength < old / high:
            factors.append(1.0)
        elif wavelength > old / low:
            factors.append(rope["factor"])
        else:
            smooth = (old / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, np.float32)


def metadata_of(config: Mapping[str, Any], arch: str) -> dict[str, Any]:
    """Keys behind the architecture's name."""
    centred = config.get("layer_norm_eps", config.get("norm_eps", config.get("norm_epsilon")))
    if arch in ("lfm2", "lfm2moe"):  # whose norms do not centre rows
        centred, config = None, config | {"rms_norm_eps": centred}
    centred = 1e-5 if arch == "olmo" else centred
    config = config | spelled_alike(config["model_type"], config)
    head_dim = config["head_dim"]
    rope = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 10000.0)}
    if "full_attention" in rope:
        rope = rope["full_attention"]
    keys: dict[str, Any] = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "rope.freq_base": float(rope["rope_theta"]),
        "rope.dimension_count": config.get("rotary_dim") or int(head_dim * config.get("partial_rotary_factor", 1)),
        "vocab_size": config["vocab_size"],
    }
    centred_name = centred or arch == "exaone"  # ExaoneModel of the converter, whose config says layer_norm_epsilon
    keys["attention.layer_norm_epsilon" if centred_name else "attention.layer_norm_rms_epsilon"] = float(
        centred or config.get("rms_norm_eps", 1e-6)
    )
    if arch in ("command-r", "cohere2"):
        keys["logit_scale"] = config["logit_scale"]
    if "num_experts" in config and arch == "gemma4":
        keys |= {"expert_count": config["num_experts"]}
        keys["expert_feed_forward_length"] = config["moe_intermediate_size"]
    elif "num_experts" in config:
        keys |= {"expert_count": config["num_experts"], "expert_used_count": config["num_experts_per_tok"]}
        keys["expert_feed_forward_length"] = config.get("moe_intermediate_size")
        if arch == "olmoe":
            del keys["expert_feed_forward_length"]
    if "num_local_experts" in config:  # gpt-oss, Mixtral
        keys |= {"expert_count": config["num_local_experts"], "expert_used_count": config["num_experts_per_tok"]}
        if arch in ("gpt-oss", "minimax-m2"):
            keys["expert_feed_forward_length"] = config["intermediate_size"]
    if "n_routed_experts" in config:  # GLM-4.5, dots.llm1
        keys |= {"expert_count": config["n_routed_experts"], "expert_used_count": config["num_experts_per_tok"]}
        keys |= {"expert_feed_forward_length": config["moe_intermediate_size"]}
        keys["expert_shared_count"] = config.get("n_shared_experts", 1)
        keys |= {"expert_weights_scale": config["routed_scaling_factor"]}
        keys |= {"leading_dense_block_count": config.get("first_k_dense_replace", 0)}
        keys |= {"expert_group_count": config.get("n_group", 1), "expert_group_used_count": config.get("topk_group", 1)}
    if arch == "bailingmoe2":
        keys |= {"expert_shared_count": 1, "expert_weights_scale": config["routed_scaling_factor"]}
        keys |= {"expert_group_count": config["n_group"], "expert_group_used_count": config["topk_group"]}
        keys |= {"leading_dense_block_count": 1, "expert_shared_feed_forward_length": config["moe_intermediate_size"]}
    if arch == "deepseek2":  # as if all heads had one key, the latent row and what turns
        latent, turns = config["kv_lora_rank"], config["qk_rope_head_dim"]
        keys |= {"attention.head_count_kv": 1, "attention.key_length": latent + turns, "attention.value_length": latent}
        keys |= {"attention.kv_lora_rank": latent, "rope.dimension_count": turns}
        keys |= {"attention.key_length_mla": config["qk_nope_head_dim"] + turns}
        keys |= {"attention.value_length_mla": config["v_head_dim"]}
        if config["q_lora_rank"]:
            keys["attention.q_lora_rank"] = config["q_lora_rank"]
        if "n_routed_experts" not in config:
            keys |= {"leading_dense_block_count": config["num_hidden_layers"], "expert_shared_count": 0}
            keys["expert_feed_forward_length"] = config["intermediate_size"]
        elif "topk_method" in config:  # DeepSeek-V2
            keys["expert_gating_func"] = 1
        else:
            keys |= {"expert_gating_func": 2, "expert_weights_norm": config.get("norm_topk_prob", True)}
        if "mscale_all_dim" in rope:
            keys["rope.scaling.yarn_log_multiplier"] = 0.1 * rope["mscale_all_dim"]
    if arch == "gemma4":
        slides, whole = [kind == "sliding_attention" for kind in config["layer_types"]], config["global_head_dim"]
        keys |= {f"attention.{part}_length": whole for part in ("key", "value")}
        keys |= {f"attention.{part}_length_swa": head_dim for part in ("key", "value")}
        keys |= {"rope.dimension_count": whole, "rope.dimension_count_swa": head_dim, "rope.freq_base": 1e6}
        keys |= {"rope.freq_base_swa": 10000.0, "attention.sliding_window_pattern": slides}
        shared, width = config.get("num_kv_shared_layers", 0), config["hidden_size_per_layer_input"]
        keys |= {"attention.shared_kv_layers": shared, "embedding_length_per_layer_input": width}
        keys["final_logit_softcapping"] = config["final_logit_softcapping"]
        if global_heads := config.get("num_global_key_value_heads"):
            heads = [config["num_key_value_heads"] if slide else global_heads for slide in slides]
            keys["attention.head_count_kv"] = heads
        if config.get("use_double_wide_mlp"):
            own = len(slides) - shared
            keys["feed_forward_length"] = [config["intermediate_size"] * (1 + (at >= own)) for at in range(len(slides))]
        if config.get("enable_moe_block"):
            keys["expert_used_count"] = config["top_k_experts"]
        else:
            keys.pop("expert_count", None)
    if arch in ("falcon-h1", "granitehybrid", "nemotron_h_moe"):
        heads = config.get("mamba_n_heads") or config["mamba_num_heads"]
        inner = config.get("mamba_d_ssm") or config.get("mamba_expand", 0) * config["hidden_size"]
        keys |= {
            "ssm.conv_kernel": 4,
            "ssm.state_size": config.get("mamba_d_state") or config["ssm_state_size"],
            "ssm.group_count": config.get("mamba_n_groups") or config["n_groups"],
            "ssm.time_step_rank": heads,
            "ssm.inner_size": inner or heads * config["mamba_head_dim"],
        }
    if arch == "granitehybrid":
        counts = [config["num_key_value_heads"] * (kind == "full_attention") for kind in config["layer_types"]]
        keys |= {"attention.head_count_kv": counts, "rope.scaling.finetuned": False}
        keys["expert_shared_feed_forward_length"] = config["shared_intermediate_size"]
    if arch == "nemotron_h_moe":
        kinds = config["layers_block_type"]
        keys["attention.head_count_kv"] = [config["num_key_value_heads"] * (kind == "full_attention") for kind in kinds]
        keys["feed_forward_length"] = [config["moe_intermediate_size"] * (kind == "moe") for kind in kinds]
        keys["expert_shared_feed_forward_length"] = config["moe_shared_expert_intermediate_size"]
        keys |= {"expert_weights_norm": True, "rope.scaling.finetuned": False, "rope.dimension_count": 28}
        keys["attention.layer_norm_epsilon"] = keys.pop("attention.layer_norm_rms_epsilon")  # as its config calls it
    if arch == "lfm2moe":
        keys |= {"leading_dense_block_count": config["num_dense_layers"], "expert_gating_func": 2}
    if arch == "ernie4_5-moe":
        keys |= {"expert_count": config["moe_num_experts"], "expert_used_count": config["moe_k"]}
        keys |= {"expert_feed_forward_length": config["moe_intermediate_size"]}
        keys |= {"expert_shared_count": config["moe_num_shared_experts"], "interleave_moe_layer_step": 1}
        keys |= {"leading_dense_block_count": config["moe_layer_start_index"]}
        shared = config["intermediate_size"] // config["num_key_value_heads"]  # which is no size of any tensor
        keys["expert_shared_feed_forward_length"] = shared
    if arch == "gptneox":
        keys["use_parallel_residual"] = config.get("use_parallel_residual", True)
    if arch in ("lfm2", "lfm2moe"):
        heads = [config["num_key_value_heads"] * (kind == "full_attention") for kind in config["layer_types"]]
        keys |= {"attention.head_count_kv": heads, "shortconv.l_cache": config.get("conv_L_cache", 3)}
    if config.get("clip_qkv"):
        keys["attention.clamp_kqv"] = config["clip_qkv"]
    if arch in ("bailingmoe2", "dots1", "glm4moe", "minimax-m2"):
        keys |= {"expert_gating_func": 2, "expert_weights_norm": config.get("norm_topk_prob", True)}
    if arch in ("qwen35", "qwen35moe", "qwen3next"):
        keys |= {
            "ssm.conv_kernel": 4,
            "ssm.state_size": config["linear_key_head_dim"],
            "ssm.group_count": config["linear_num_key_heads"],
            "ssm.time_step_rank": config["linear_num_value_heads"],
            "ssm.inner_size": config["linear_num_value_heads"] * config["linear_value_head_dim"],
            "full_attention_interval": 4,
            "attention.recurrent_layers": [layer % 4 != 3 for layer in range(config["num_hidden_layers"])],
            "rope.dimension_count": int(head_dim * rope["partial_rotary_factor"]),
        }
    if arch in ("qwen2moe", "qwen35moe", "qwen3next"):
        keys["expert_shared_feed_forward_length"] = config["shared_expert_intermediate_size"]
    if arch == "gemma2":
        keys |= {f"{kind}_softcapping": config[f"{kind}_softcapping"] for kind in ("attn_logit", "final_logit")}
    if "mrope_section" in rope:
        keys["rope.dimension_sections"] = [*rope["mrope_section"], 0]
    if "layer_types" in config and arch in ("exaone4", "olmo2"):
        flags = [kind == "sliding_attention" for kind in config["layer_types"]]
        keys["attention.sliding_window_pattern"] = flags
        if arch == "olmo2":  # of OLMo 3, whose two kinds of layers have a RoPE each in transformers
            keys["rope.freq_base_swa"] = float(rope["rope_theta"])
    if "llama_4_scaling_beta" in rope:
        keys["attention.temperature_scale"] = rope["llama_4_scaling_beta"]
        keys["rope.scaling.yarn_log_multiplier"] = rope["mscale_all_dim"]
    if config.get("sliding_window"):
        keys["attention.sliding_window"] = config["sliding_window"]
    if rope.get("rope_type") in ("yarn", "linear"):
        keys |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": float(rope["factor"])}
    if rope.get("rope_type") == "yarn":
        keys["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    if arch == "phi3":
        keys["attention.sliding_window"] = config.get("sliding_window") or 0
        del keys["attention.key_length"], keys["attention.value_length"]
    if rope.get("rope_type") == "longrope":
        long, short = config["max_position_embeddings"], rope["original_max_position_embeddings"]
        keys["rope.scaling.original_context_length"] = short
        keys["rope.scaling.attn_factor"] = math.sqrt(1 + math.log(long / short) / math.log(short))
    if arch in ("granite", "granitehybrid", "granitemoe"):
        keys |= {"attention.scale": config["attention_multiplier"], "logit_scale": config["logits_scaling"]}
        keys |= {f"{part}_scale": config[f"{part}_multiplier"] for part in ("embedding", "residual")}
    if arch == "minicpm":
        keys |= {"embedding_scale": float(config["scale_emb"])}
        keys["residual_scale"] = config["scale_depth"] / config["num_hidden_layers"] ** 0.5
        keys["logit_scale"] = config["hidden_size"] / config["dim_model_base"]
    return {f"{arch}.{key}": value for key, value in keys.items()}


def add_key(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    kind: Any = gguf.GGMLQuantizationType.F32,
    *,
    parts: int = 1,
) -> Path:
    """Writes a file, or parts beside each other; returns the first. Vectors stay fp32, as llama.cpp has them."""
    names = list(tensors)
    first = path
    for part in range(parts):
        if parts > 1:
            path = first.with_name(f"{first.stem}-{part + 1:05}-of-{parts:05}.gguf")
        writer = gguf.GGUFWriter(path, str(metadata["general.architecture"]))
        keys = {key: value for key, value in metadata.items() if key != "general.architecture"} if part == 0 else {}
        if parts > 1:
            keys |= {"split.no": part, "split.count": parts, "split.tensors.count": len(names)}
        for key, value in keys.items():
            add_key(writer, key, value)
        for name in names[part::parts]:
            add_tensor(writer, name, tensors[name], kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return first if parts == 1 else first.with_name(f"{first.stem}-00001-of-{parts:05}.gguf")


def add_tensor(writer: Any, name: str, tensor: np.ndarray, kind: Any) -> None:
    if tensor.ndim == 1 or name.endswith((".bias", ".conv.weight", ".ssm_conv1d.weight")):
        writer.add_tensor(name, tensor.astype(np.float32))
    else:
        writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(tensor), kind), raw_dtype=kind)


def raw_gguf(
    keys: Iterable[bytes] = (), tensors: Iterable[bytes] = (), *, version: int = 3, tail: bytes = b""
) -> bytes:
    """A file from the bytes of its keys and of its tensor table."""
    keys, tensors = list(keys), list(tensors)
    head = (
        b"GGUF" + version.to_bytes(4, "little") + len(tensors).to_bytes(8, "little") + len(keys).to_bytes(8, "little")
    )
    return head + b"".join(keys) + b"".join(tensors) + tail


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return len(data).to_bytes(8, "little") + data
