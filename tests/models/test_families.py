"""What is particular to a family: keys that are refused, names of files and inputs."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from family_forms import EVERY_FORM, forms_of

from tcim_lite.hmm import read
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.families import FAMILIES, read_config

Graphs = Callable[[str], list[Path]]
SIZES = {"random_weights": True, "prefill_length": 8, "context_length": 64}
KDA = ["linear_attention", "full_attention"] * 2
AXES, GLM = (FAMILIES[name].tiny["rope_parameters"] for name in ("qwen3_vl", "glm_ocr"))


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Graphs:
    """graphs(family) -> the prefill and the decode graph of its tiny config."""

    @functools.cache
    def make(family: str) -> list[Path]:
        folder = tmp_path_factory.mktemp(family)
        (folder / "config.json").write_text(json.dumps(FAMILIES[family].tiny_config))
        with pytest.warns(match="no tokenizer"):
            result = compile_checkpoint(CompileOptions(checkpoint=folder, output=folder / "out", **SIZES))
        ends = ("_prefill.hmm", "_decode.hmm")
        return [folder / "out" / file for end in ends for file in result.files if file.name.endswith(end)]

    return make


@pytest.mark.parametrize("family", FAMILIES)
def test_config_json_chooses_the_family(graphs: Graphs, family: str) -> None:
    """The package is named after it unless a name is given; each of the two keys is enough."""
    config = FAMILIES[family].tiny_config
    for key in ("architectures", "model_type"):
        assert read_config({k: v for k, v in config.items() if k != key}).family is FAMILIES[family]
    if FAMILIES[family].saved_as:
        assert read_config({**config, "architectures": [FAMILIES[family].saved_as]}).family is FAMILIES[family]
    prefill, decode = graphs(family)
    assert (prefill.name, decode.name) == (f"{family}_prefill.hmm", f"{family}_decode.hmm")
    assert json.loads(read(decode).custom_msg)["model_type"] == family


@pytest.mark.parametrize("kind", ["all", "stateless"])
def test_the_families_that_stand_for_others_have_every_form_of_op_and_block(graphs: Graphs, kind: str) -> None:
    """Of those with states too little is run: neither splits of prompts nor verify."""
    families = [family for family in FAMILIES if kind == "all" or not FAMILIES[family].contract.carried]
    forms = {family: forms_of(family, graphs(family)) for family in families}
    missing = set().union(*forms.values()) - set().union(*(forms[family] for family in EVERY_FORM if family in forms))
    assert not missing, [family for family in families if forms[family] & missing]


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        *(
            (family, {"rope_parameters": {"rope_type": "default", "mrope_section": section}}, message)
            for family in ("qwen3_vl", "qwen3_vl_moe", "qwen2_5_vl", "qwen2_vl", "paddleocr_vl")
            for section, message in (
                ([8, 8], r"mrope_section must be three whole numbers, got \[8, 8\]"),
                ([8, 8, 8], r"mrope_section=\[8, 8, 8\] must add up to 32"),
                ([40, -8, 0], "must add up to 32"),
                ("8", "mrope_section must be three whole numbers, got '8'"),
            )
        ),
        ("qwen3_vl", {"text_config": 3}, "text_config must be an object"),
        ("qwen3_vl", {"rope_parameters": {**AXES, "mrope_interleaved": False}}, "mrope_interleaved=False is not supp"),
        ("glm_ocr", {"rope_parameters": {**GLM, "partial_rotary_factor": 0.5}}, r"=\[8, 8, 8\] must add up to 16"),
        ("glm_ocr", {"rope_parameters": {**GLM, "partial_rotary_factor": 2.0}}, "=2.0 turns 128 of 64 elements"),
        ("qwen3_moe", {"num_experts_per_tok": 9}, "num_experts_per_tok=9 is more than the 8 experts of a layer"),
        ("qwen3_moe", {"num_experts": 0}, "num_experts must be a positive integer, got 0"),
        ("qwen3_moe", {"num_experts": None}, "config.json has no 'num_experts'"),
        ("qwen3_moe", {"mlp_only_layers": "all"}, "mlp_only_layers must be a list of layers, got 'all'"),
        ("qwen3_moe", {"mlp_only_layers": [-1]}, "mlp_only_layers must be a list of layers"),
        ("qwen3_moe", {"norm_topk_prob": 1}, "norm_topk_prob must be true or false"),
        ("qwen3_5", {"layer_types": 7}, "layer_types must be a list of texts"),
        ("qwen3_5", {"linear_conv_kernel_dim": 0}, "linear_conv_kernel_dim must be a positive integer, got 0"),
        ("qwen3_5", {"attention_bias": True}, "attention_bias"),
        ("qwen3_5", {"attn_output_gate": False}, "attn_output_gate=False"),
        (
            "qwen3_5",
            {"rope_parameters": {"partial_rotary_factor": 0.01, "rope_type": "default"}},
            "partial_rotary_factor",
        ),
        ("lfm2", {"layer_types": ["conv"] * 4}, "must name 4 layers conv or full_attention, one of them the latter"),
        ("lfm2", {"layer_types": ["conv", "full_attention"]}, "layer_types must name 4 layers"),
        ("lfm2", {"layer_types": ["linear_attention"] * 4}, "layer_types must name 4 layers"),
        ("lfm2", {"conv_L_cache": 0}, "conv_L_cache must be a positive integer, got 0"),
        ("lfm2", {"block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1e-9}, "leaves no intermediate size"),
        ("qwen3", {"is_causal": False}, "is_causal=False is not supported; Qwen3 dense is compiled with True only"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping=50.0 is not supported; Gemma 3"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention=True is not supported: with a"),
        ("gemma3", {"hidden_activation": "silu"}, "hidden_activation='silu' is not supported"),
        ("gemma3", {"sliding_window": None}, "config.json has no 'sliding_window'"),
        ("gemma3", {"final_logit_softcapping": -1}, "final_logit_softcapping must be a positive number"),
        ("gemma3", {"rope_parameters": {"sliding_attention": 3}}, "sliding_attention must be an object, got 3"),
        ("gemma3n", {"altup_num_inputs": 2}, "altup_num_inputs=2 is not supported; Gemma 3n is compiled with 4 only"),
        ("gemma3n", {"altup_active_idx": 1}, "altup_active_idx=1 is not supported"),
        ("gemma3n", {"attention_bias": True}, "attention_bias=True is not supported"),
        ("gemma3n", {"num_kv_shared_layers": 4}, "leaves no layer whose keys and values layer 0 could share"),
        ("gemma3n", {"activation_sparsity_pattern": [0.5]}, "a number below 1 for each of 4 layers"),
        ("gemma3n", {"activation_sparsity_pattern": [1.0, 0, 0, 0]}, "a number below 1 for each of 4 layers"),
        ("gemma3n", {"intermediate_size": [64, 64, 64, 32]}, "intermediate_size must be the same for all layers"),
        ("gemma3n", {"hidden_size_per_layer_input": 0}, "hidden_size_per_layer_input must be a positive integer"),
        ("jamba", {"attn_layer_offset": 2}, "attn_layer_offset=2 must be below attn_layer_period=2"),
        ("jamba", {"expert_layer_offset": 2}, "expert_layer_offset=2 must be below expert_layer_period=2"),
        ("jamba", {"attn_layer_period": 9, "attn_layer_offset": 8}, "none of the 4 layers .* has attention"),
        ("jamba", {"mamba_dt_rank": "all"}, "mamba_dt_rank must be a positive integer, got 'all'"),
        ("jamba", {"hidden_act": "gelu"}, "hidden_act='gelu' is not supported"),
        ("kimi_linear", {"linear_attn_config": []}, "linear_attn_config must be an object"),
        ("kimi_linear", {"layer_types": KDA, "linear_attn_config": {"num_heads": 0}}, "num_heads must be a positive"),
        (
            "kimi_linear",
            {"linear_attn_config": {"full_attn_layers": [0, 2], "kda_layers": [1, 3]}},
            "must name each of 4 layers once, the first as 1",
        ),
        ("kimi_linear", {"layer_types": ["linear_attention"] * 4}, "none of the 4 layers of layer_types has attention"),
        ("kimi_linear", {"mla_use_nope": False}, "mla_use_nope=False is not supported"),
        ("mamba", {"time_step_rank": 0}, "time_step_rank must be a positive integer, got 0"),
        ("mamba", {"hidden_act": "relu"}, "hidden_act='relu' is not supported"),
        ("mamba2", {"num_heads": 6}, "6 heads of 48 are not the 384 values of `expand`"),
        ("mamba2", {"n_groups": 3}, "3 groups of state-space layers do not divide their 8 heads"),
        ("mamba2", {"time_step_limit": [0.0, 1.0]}, "time_step_limit=.* is not supported"),
        (
            "nanochat",
            {"hidden_act": "silu"},
            "hidden_act='silu' is not supported; nanochat is compiled with 'relu2' only",
        ),
        ("openai-gpt", {"afn": "silu"}, "afn='silu' is not supported, expected gelu or relu"),
        ("xglm", {"add_cross_attention": True}, "add_cross_attention=True is not supported"),
        ("opt", {"do_layer_norm_before": 1}, "do_layer_norm_before must be true or false"),
        ("internlm3", {"qkv_bias": 1}, "qkv_bias must be true or false, got 1"),
        ("exaone4", {"sliding_window_pattern": "LLLG"}, "sliding_window_pattern must be a positive integer"),
        ("hunyuan_v1_dense", {"use_cla": True}, "use_cla=True is not supported; Hunyuan dense is compiled with False"),
        ("qwen2_moe", {"use_sliding_window": True, "max_window_layers": "x"}, "max_window_layers must be an integer"),
        ("qwen2_moe", {"layer_types": ["sliding_attention"] * 2}, "sliding_window must be a positive integer, got 0"),
        ("granite", {"residual_multiplier": 0}, "residual_multiplier must be a positive number"),
        ("llama", {"model_type": "mistral"}, r"another architecture.*LlamaForCausalLM.*'mistral'.*Llama \(Llama"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act='gelu' is not supported; Llama is compiled with 'silu' only"),
        ("llama", {"mlp_bias": "yes"}, "mlp_bias must be true or false"),
        ("mistral", {"layer_types": ["full_attention"] * 2}, r"layer_types=.* is not supported"),
        ("glm4_moe", {"n_group": 3}, "n_group=3 and topk_group=1 do not fit 8 experts of which 2 are chosen"),
        ("deepseek_v3", {"n_group": 8}, "n_group=8 and topk_group=2 do not fit .* equal groups of 2 or more"),
        ("deepseek_v3", {"topk_group": 5}, "n_group=4 and topk_group=5 do not fit"),
        (
            "deepseek_v3",
            {"scoring_func": "softmax"},
            "scoring_func='softmax' is not supported; DeepSeek-V3",
        ),
        ("deepseek_v3", {"topk_method": "greedy"}, "topk_method='greedy' is not supported"),
        ("deepseek_v3", {"num_key_value_heads": 3}, "num_key_value_heads=3 with latent attention, expected 6"),
        ("deepseek_v3", {"q_lora_rank": -1}, "q_lora_rank must be a positive integer, got -1"),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method='noaux_tc' is not supported, expected greedy or"),
        ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob=True is not supported"),
        ("granitemoehybrid", {"num_experts_per_tok": 0}, "num_experts_per_tok=0 of 8 experts, expected some"),
        ("deepseek_v2", {"num_experts_per_tok": 5}, "do not fit 8 experts of which 5 are chosen"),
        ("glm4_moe_lite", {"mlp_layer_types": ["dense"]}, "mlp_layer_types must name 2 MLPs, dense or sparse"),
        ("minicpm3", {"scale_depth": 0}, "scale_depth must be a positive number"),
        ("ministral3", {"layer_types": ["full_attention"] * 2}, r"layer_types=.* is not supported; Ministral 3"),
        ("mistral", {"sliding_window": 0}, "sliding_window must be a positive integer, got 0"),
        ("qwen2", {"use_mrope": True}, "use_mrope=True"),
        ("minicpmv", {"version": 2.6}, "version=2.6 is not supported; MiniCPM-V 4.5 is compiled with 4.5 only"),
        ("phi3", {"rope_scaling": {"type": ["su"]}}, r"rope_type must be a string, got \['su'\]"),
        ("phi3", {"partial_rotary_factor": 0.66}, "partial_rotary_factor=0.66 turns 21 of 32 elements of a head"),
        ("qwen3", {"partial_rotary_factor": 0.75}, "partial_rotary_factor=0.75 is not supported"),
        (
            "laguna",
            {"mlp_layer_types": ["dense"]},
            r"mlp_layer_types must name 2 MLPs, dense or sparse, got \['dense'\]",
        ),
        ("laguna", {"gating": False}, "gating=False is not supported, expected true, per-head or per-element"),
        ("laguna", {"gating": 1}, "gating must be a text, true or false, got 1"),
        (
            "laguna",
            {"num_attention_heads_per_layer": [6]},
            "num_attention_heads_per_layer has 1 numbers, expected one for each of 2 layers",
        ),
        ("laguna", {"num_attention_heads_per_layer": [6, 5]}, "6, 5., expected multiples of num_key_value_heads=2"),
        ("laguna", {"num_attention_heads_per_layer": 6}, "num_attention_heads_per_layer must be a list of positive"),
        ("laguna", {"moe_router_logit_softcapping": 5.0}, "moe_router_logit_softcapping=5.0 is not supported"),
        ("olmoe", {"clip_qkv": 8.0}, "clip_qkv=8.0 is not supported; OLMoE is compiled with None only"),
        ("gemma", {"hidden_act": "silu"}, "hidden_act='silu' is not supported; Gemma is compiled with 'gelu_pytorch"),
        ("minimax_m2", {"rotary_dim": 65}, "partial_rotary_factor=1.015625 turns 65 of 64 elements"),
        ("minimax_m2", {"scoring_func": "softmax"}, "scoring_func='softmax' is not supported; MiniMax-M2"),
        ("hunyuan_v1_moe", {"moe_topk": [2, 3]}, r"moe_topk must be the same for all layers, got \[2, 3\]"),
        ("hunyuan_v1_moe", {"moe_topk": []}, r"moe_topk must be the same for all layers, got \[\]"),
        ("hunyuan_v1_moe", {"num_experts": [0, 0]}, "each of num_experts must be a positive integer, got 0"),
        ("exaone_moe", {"mlp_layer_types": ["dense"]}, r"mlp_layer_types must name 2 MLPs, dense or sparse, got \["),
        ("dots1", {"topk_group": 2}, "n_group=1 and topk_group=2 do not fit 8 experts of which 2 are chosen"),
        ("arcee", {"hidden_act": "silu"}, "hidden_act='silu' is not supported; Arcee is compiled with 'relu2' only"),
        (
            "starcoder2",
            {"hidden_act": "swish"},
            "hidden_act='swish' is not supported, expected gelu, gelu_fast, gelu_n",
        ),
        ("gpt_neox", {"hidden_act": True}, "hidden_act=True is not supported, expected gelu"),
        ("gpt_neox", {"rotary_pct": 0.3}, "partial_rotary_factor=0.3 turns 9 of 32 elements of a head"),
        ("cohere2", {"use_qk_norm": True}, "use_qk_norm=True is not supported; Command R7B and A is compiled with"),
        ("cohere2", {"sliding_window_pattern": 0}, "sliding_window_pattern must be a positive integer, got 0"),
        ("olmo", {"clip_qkv": 0}, "clip_qkv must be a positive number"),
        ("codegen", {"n_head": 6}, "n_head=6 is not a multiple of 4"),
        (
            "cohere2_moe",
            {"expert_selection_fn": "relu"},
            "expert_selection_fn='relu' is not supported, expected softmax",
        ),
        ("cohere2_moe", {"mlp_layer_types": ["dense"]}, "mlp_layer_types must name 3 MLPs, dense or sparse"),
        ("deepseek_v32", {"mlp_layer_types": ["dense"]}, "mlp_layer_types must name 2 MLPs, dense or sparse"),
        ("deepseek_v32", {"rope_interleave": False}, "rope_interleave=False is not supported; DeepSeek-V3.2 is"),
        ("deepseek_v32", {"q_lora_rank": None}, "config.json has no 'q_lora_rank'"),
        (
            "gemma4_unified",
            {"enable_moe_block": True},
            "enable_moe_block=True is not supported; Gemma 4 12B is compiled",
        ),
        ("gemma4_unified", {"hidden_size_per_layer_input": 64}, "hidden_size_per_layer_input=64 is not supported"),
        ("lfm3", {"layer_types": ["conv"] * 4}, "must name 4 layers, conv, full_attention, sliding_attention, one of"),
        ("llama4", {"num_experts_per_tok": 2}, "num_experts_per_tok=2 is not supported; Llama 4 is compiled with 1"),
        ("llama4", {"no_rope_layers": [1]}, "no_rope_layers has 1 numbers, expected one for each of 2"),
        (
            "llama4",
            {"layer_types": ["sliding_attention"] * 2},
            "must name 2 layers, chunked_attention or full_attention",
        ),
        ("llama4", {"attention_chunk_size": None}, "config.json has no 'attention_chunk_size'"),
        ("falcon", {"alibi": True}, "alibi=True is not supported; Falcon is compiled with False only"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention=True is not supported; GPT-2 is compiled with"),
        ("gpt_neo", {"attention_types": [[["global"], 1]]}, "must be lists of global and local.*, for 2 layers"),
        ("gpt_neo", {"attention_types": [[["local", "far"], 1]]}, "must be lists of global and local"),
        ("gpt_neo", {"attention_types": 7}, "attention_types=7 must be lists of global and local"),
        ("gpt_neo", {"attention_layers": ["local", "local"]}, "are not those of attention_types"),
        ("opt", {"activation_function": "silu"}, "hidden_act='silu' is not supported, expected gelu"),
        ("gptj", {"rotary_dim": None}, "config.json has no .rotary_dim"),
        ("phi", {"qk_layernorm": True}, "qk_layernorm=True is not supported; Phi is compiled with False only"),
        ("nemotron", {"norm_eps": 0}, "norm_eps must be a positive number"),
        ("ernie4_5_moe", {"moe_norm_min": 0.1}, "moe_norm_min=0.1 is not supported; ERNIE 4.5 MoE is compiled with 1e"),
        ("ernie4_5_moe", {"moe_layer_end_index": -2}, "moe_layer_end_index must be the number of a layer, 0 for the"),
        (
            "phimoe",
            {"num_experts_per_tok": 3},
            "num_experts_per_tok=3 is not supported; Phi-3.5-MoE is compiled with 2",
        ),
        ("ernie4_5", {"use_bias": True}, "use_bias=True is not supported; ERNIE 4.5 dense is compiled with False only"),
        ("minicpm", {"num_experts": 8}, "num_experts=8 is not supported; MiniCPM is compiled with 0 only"),
        ("minicpm", {"sparse_config": {}}, "sparse_config={} is not supported; MiniCPM is compiled with None only"),
        ("chatglm", {"rope_ratio": 0}, "rope_ratio must be a positive number"),
        ("chatglm", {"multi_query_attention": False}, "multi_query_attention=False is not supported; ChatGLM"),
        ("granitemoehybrid", {"layer_types": ["mamba"] * 4}, "none of the 4 layers of layer_types has attention"),
        ("granitemoehybrid", {"layer_types": ["mamba", "conv"]}, r"layer_types must name 4 layers, linear_a.*, got \["),
        ("granitemoehybrid", {"mamba_n_heads": 7}, "7 heads of state-space layers do not divide their 384 values"),
        ("bamba", {"mamba_n_groups": 3}, "3 groups of state-space layers do not divide their 8 heads"),
        ("bamba", {"attn_layer_indices": []}, "none of the 4 layers of attn_layer_indices has attention"),
        ("bamba", {"time_step_limit": [0.0, 0.1]}, r"time_step_limit=\[0.0, 0.1\] is not supported; Bamba"),
        ("falcon_h1", {"ssm_multipliers": [1.0] * 4}, "mlp_multipliers must be 2 numbers, and ssm_multipliers 5"),
        ("falcon_h1", {"mlp_multipliers": 1.0}, "mlp_multipliers must be a list of positive numbers, got 1.0"),
        ("falcon_h1", {"attention_bias": True}, "attention_bias=True is not supported; Falcon-H1 is compiled with"),
        ("nemotron_h", {"layers_block_type": ["gru", "full_attention"]}, "layers_block_type must name 2 layers, .*gru"),
        ("nemotron_h", {"mlp_bias": True}, "mlp_bias with layers of experts is not supported"),
        ("granitemoehybrid", {"position_embedding_type": "x"}, "position_embedding_type='x', expected rope or nope"),
        ("granite_swa", {"layer_rope_theta": [0, 1e4]}, "layer_rope_theta has 2 numbers, expected one for each of 3"),
        ("granite_swa", {"layer_rope_theta": [5e3, 1e4, 2e4]}, r"has \[5000.0, 20000.0\] beside 10000.0, expected one"),
        ("granite_swa", {"layer_rope_theta": [-1]}, "each of layer_rope_theta must be a positive number"),
        ("granitemoe_swa", {"layer_rope_theta": 5}, "layer_rope_theta must be a list of numbers from 0 on, got 5"),
        ("hy_v3", {"mlp_bias": True}, "mlp_bias=True is not supported; Hunyuan 3 is compiled with False only"),
        ("hy_v3", {"mlp_layer_types": ["dense"]}, "mlp_layer_types must name 2 MLPs, dense or sparse"),
        ("mellum", {"mlp_layer_types": ["dense"]}, "mlp_layer_types must name 2 MLPs, dense or sparse"),
        ("glm4", {"partial_rotary_factor": 0.01}, "partial_rotary_factor=0.01 turns 0 of 64 elements"),
        ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers has 1 numbers, expected one for each of 2"),
        ("smollm3", {"no_rope_layers": [True, False]}, "no_rope_layers must be a list of layers"),
    ],
)
def test_refusals(family: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        read_config({**FAMILIES[family].tiny_config, **changes}).blocks(0)


@pytest.mark.parametrize(
    ("model_type", "architecture", "expected"),
    [
        ("qwen3_vl_text", "Qwen3VLTextModel", "Qwen3VLForConditionalGeneration"),
        ("gemma3_text", "Gemma3TextModel", "Gemma3ForCausalLM"),
        ("qwen2_5_vl_text", None, "Qwen2_5_VLForConditionalGeneration"),
        ("qwen3_5_text", "Qwen3_5TextModel", "Qwen3_5ForCausalLM"),
    ],
)
def test_a_part_of_a_checkpoint_names_the_whole(model_type: str, architecture: str | None, expected: str) -> None:
    config = {"model_type": model_type, "architectures": architecture and [architecture]}
    with pytest.raises(CompileError, match=f"'{model_type}'.*; compile the folder of the whole checkpoint, {expected}"):
        read_config(config)


@pytest.mark.parametrize(("qkv", "others"), [(True, False), (False, True)])
def test_biases_of_internlm3_are_on_q_k_v_or_on_all_other_linears(qkv: bool, others: bool) -> None:
    attention, mlp = read_config({**FAMILIES["internlm3"].tiny_config, "qkv_bias": qkv, "bias": others}).blocks(0)
    assert (attention.qkv_bias, attention.out_bias, mlp.bias) == (qkv, others, others)


def test_yarn_for_longer_contexts_changes_the_scale_of_latent_attention() -> None:
    config = FAMILIES["deepseek_v3"].tiny_config
    yarn = {"type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0}

    def scale(**changes: Any) -> float:
        return read_config({**config, "rope_scaling": {**yarn, **changes}}).blocks(0)[0].scale

    assert scale() == pytest.approx((0.1 * math.log(40) + 1) ** 2 / 96**0.5, rel=1e-12)
    assert scale(mscale_all_dim=0) == read_config(config).blocks(0)[0].scale == 96**-0.5
    with pytest.raises(CompileError, match="needs a positive 'mscale_all_dim', got 'x'"):
        scale(mscale_all_dim="x")


def test_kimi_k2_is_a_deepseek_v3() -> None:
    assert read_config({**FAMILIES["deepseek_v3"].tiny_config, "model_type": "kimi_k2"}).family.title == "DeepSeek-V3"


def test_the_window_of_old_mistral_files_is_4096() -> None:
    old = {key: value for key, value in FAMILIES["mistral"].tiny_config.items() if key != "sliding_window"}
    assert read_config(old).windows == (4096, 4096)
    assert read_config({**old, "sliding_window": None}).windows == (None, None)


@pytest.mark.parametrize("early", ["su", "yarn"])
def test_early_phi3_files_have_other_names_for_longrope(early: str) -> None:
    scaling = {"type": early, "short_factor": [1.0] * 16, "long_factor": [2.0] * 16}
    read = read_config({**FAMILIES["phi3"].tiny_config, "rope_scaling": scaling})
    assert read.rope_scaling["rope_type"] == "longrope"


def test_factors_of_granite_go_into_constants() -> None:
    config = FAMILIES["granite"].tiny_config
    read = read_config(config)
    assert read.embedding_scale == config["embedding_multiplier"] / config["residual_multiplier"]
    assert read.rms_norm_eps == config["rms_norm_eps"] / config["residual_multiplier"] ** 2
    assert read.logit_scale == 1 / config["logits_scaling"]
    factors = {key: value for key, value in config.items() if "multiplier" not in key and key != "logits_scaling"}
    plain = read_config(factors)
    assert (plain.embedding_scale, plain.rms_norm_eps, plain.logit_scale) == (1, config["rms_norm_eps"], 1)


def test_inputs_are_those_of_the_contract_and_answer_to_their_aliases(tmp_path: Path) -> None:
    runtime = pytest.importorskip("tcim_lite.runtime", reason="needs the core")
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["qwen3"].tiny_config))
    with pytest.warns(match="no tokenizer"):
        compile_checkpoint(CompileOptions(checkpoint=tmp_path, output=tmp_path / "out", batch=2, **SIZES))
    contract = FAMILIES["qwen3"].contract
    names = [port.names() for port in contract.shared]
    for slot in range(2):
        names += [port.names(slot) for port in contract.per_slot]
        names += [port.names(slot, layer) for port in contract.per_layer for layer in range(2)]
    module = runtime.load(tmp_path / "out/qwen3_decode.hmm")
    assert [module.get_input_name(i) for i in range(module.get_num_inputs())] == [known[0] for known in names]
    for name, *aliases in names:
        assert aliases
        for alias in aliases:
            assert module.get_input_info(alias).name == name
    assert module.get_output_name(0) == contract.output
