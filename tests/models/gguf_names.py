"""What llama.cpp's converter calls the tensors of a Hugging Face checkpoint."""

from __future__ import annotations

import re

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "backbone.embeddings": "token_embd",
    "backbone.norm_f": "output_norm",
    "lm_head": "output",
    "model.embed_tokens_per_layer": "per_layer_token_embd",
    "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm",
    "gpt_neox.embed_in": "token_embd",
    "gpt_neox.final_layer_norm": "output_norm",
    "embed_out": "output",
    "model.final_layernorm": "output_norm",
    "model.word_embeddings": "token_embd",
    "transformer.wte": "token_embd",
    "transformer.ln_f": "output_norm",
    "model.embedding_norm": "token_embd_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.router": "ffn_gate_inp",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up",
    "block_sparse_moe.gate": "ffn_gate_inp",
}
EXPERT = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}


# Of a layer, by architecture, where other names are used.
AROUND = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
SHARED = {f"mlp.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")}
NET = {
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
SHARED_EXPERT = {
    **{f"mlp.shared_expert.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
LATENT = {
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    **SHARED,
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
}
SHORT_CONV = {
    "operator_norm": "attn_norm",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "self_attn.out_proj": "attn_output",
    "conv.conv": "shortconv.conv",
    "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj",
    "ffn_norm": "ffn_norm",
    **{f"feed_forward.{theirs}": f"ffn_{ours}" for theirs, ours in (("w1", "gate"), ("w2", "down"), ("w3", "up"))},
}
GEMMA4 = {
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    **{f"post_feedforward_layernorm_{number}": f"post_ffw_norm_{number}" for number in (1, 2)},
    "layer_scalar": "layer_output_scale.weight",
    "router.proj": "ffn_gate_inp",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
MAMBA = {
    "in_proj": "ssm_in",
    "conv1d": "ssm_conv1d",
    "dt_bias": "ssm_dt.bias",
    "A_log": "ssm_a",
    "D": "ssm_d",
    "norm": "ssm_norm",
    "out_proj": "ssm_out",
}
FEED_FORWARD = {f"feed_forward.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")}
OWN = {
    "falcon-h1": {
        **{f"mamba.{theirs}": ours for theirs, ours in MAMBA.items()},
        **FEED_FORWARD,
        "pre_ff_layernorm.weight": "ffn_norm",
    },
    "granitehybrid": {
        **{f"mamba.{theirs}": ours for theirs, ours in MAMBA.items()},
        "block_sparse_moe.router.layer": "ffn_gate_inp",
        "shared_mlp.output_linear": "ffn_down_shexp",
    },
    "nemotron_h_moe": {
        **{f"mixer.{theirs}": ours for theirs, ours in MAMBA.items()},
        "norm": "attn_norm",
        **{f"mixer.{part}_proj": f"attn_{part}" for part in "qkv"},
        "mixer.o_proj": "attn_output",
        **{f"mixer.{part}_proj": f"ffn_{part}" for part in ("up", "down")},
        "mixer.gate": "ffn_gate_inp",
        "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
        **{f"mixer.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("up", "down")},
    },
    "gemma4": GEMMA4,
    "deepseek2": LATENT,
    "ernie4_5-moe": {**SHARED, "mlp.moe_statics.e_score_correction_bias": "exp_probs_b.bias"},
    "lfm2moe": {
        **SHORT_CONV,
        "feed_forward.gate": "ffn_gate_inp",
        "feed_forward.expert_bias": "exp_probs_b.bias",
    },
    "qwen3next": {**NET, **SHARED_EXPERT, "linear_attn.in_proj_ba": "ssm_ba"},
    "bailingmoe2": {
        **SHARED,
        "attention.query_key_value": "attn_qkv",
        "attention.query_layernorm": "attn_q_norm",
        "attention.key_layernorm": "attn_k_norm",
        "attention.dense": "attn_output",
        "mlp.gate.expert_bias": "exp_probs_b.bias",
    },
    "exaone": {
        **{f"attn.attention.{part}_proj": f"attn_{part}" for part in "qkv"},
        "attn.attention.out_proj": "attn_output",
        "ln_1": "attn_norm",
        "ln_2": "ffn_norm",
        "mlp.c_fc_0": "ffn_gate",
        "mlp.c_fc_1": "ffn_up",
        "mlp.c_proj": "ffn_down",
    },
    "gptneox": {
        "attention.query_key_value": "attn_qkv",
        "attention.dense": "attn_output",
        "mlp.dense_h_to_4h": "ffn_up",
        "mlp.dense_4h_to_h": "ffn_down",
    },
    "lfm2": SHORT_CONV,
    "phi2": {"self_attn.dense": "attn_output", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"},
    "starcoder2": {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
    "stablelm": {f"self_attn.{part}_layernorm": f"attn_{part}_norm" for part in "qk"},
    "dots1": {**SHARED, "mlp.gate.e_score_correction_bias": "exp_probs_b.bias"},
    "exaone4": AROUND,
    "gemma2": {**AROUND, "pre_feedforward_layernorm": "ffn_norm"},
    "gemma3": {**AROUND, "pre_feedforward_layernorm": "ffn_norm"},
    "glm4": {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"},
    "glm4moe": {
        **SHARED,
        "post_attention_layernorm": "post_attention_norm",
        "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    },
    "gpt-oss": AROUND,
    "granitemoe": {"block_sparse_moe.router.layer": "ffn_gate_inp"},
    "hunyuan-dense": {"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"},
    "minimax-m2": {"block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias"},
    "olmo2": AROUND,
    "qwen2moe": SHARED_EXPERT,
    "qwen35": NET,
    "qwen35moe": {**NET, **SHARED_EXPERT},
    "seed_oss": AROUND,
}


def gguf_name(name: str, arch: str) -> str:
    if name.endswith(".self_attn.sinks"):
        return f"blk.{name.split('.')[2]}.attn_sinks.weight"
    stem, kind = name.rsplit(".", 1)
    if in_layer := re.fullmatch(
        r"(?:model\.layers|backbone\.layers|gpt_neox\.layers|transformer\.h)\.(\d+)\.(.*)", name
    ):
        layer, inner = in_layer.groups()
        names = {**NAMES, **OWN.get(arch, {})}
        if inner in names:
            return f"blk.{layer}.{names[inner]}"
        return f"blk.{layer}.{names[inner.rsplit('.', 1)[0]]}.{kind}"
    return f"{NAMES[stem]}.{kind}"
