"""Forms of families that their tiny configs do not have, against transformers in float32."""

import pytest
from oracle import assert_float32_graphs_agree, oracle_logits, random_model, random_weights

from tcim_lite.models.families import FAMILIES

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'tcim-lite[test]'")
transformers = pytest.importorskip("transformers", reason="the oracle needs transformers")

pytestmark = pytest.mark.oracle

FORMS = {
    "biogpt, an embedding as it is": {"scale_embedding": False, "hidden_act": "relu", "tie_word_embeddings": False},
    "codegen, four heads": {"n_head": 4, "rotary_dim": 8},
    "cohere2_moe, no shared expert, biases": {
        "num_shared_experts": 0,
        "norm_topk_prob": False,
        "attention_bias": True,
    },
    "cohere2_moe, seven layers as usual, RMS norms, a softmax": {
        "rms_norm_eps": 1e-6,
        "expert_selection_fn": "softmax",
        "shared_expert_combination_strategy": "sum",
        "layer_types": None,
        "mlp_layer_types": None,
        "first_k_dense_replace": 2,
        "prefix_dense_sliding_window_pattern": 2,
        "prefix_dense_intermediate_size": None,
        "num_hidden_layers": 7,
    },
    "deepseek_v32, an index of as many tokens as there are, biases": {"index_topk": 320, "attention_bias": True},
    "deepseek_v32, dense layers by name": {"mlp_layer_types": ["sparse", "dense"]},
    "falcon, as 40B": {"num_ln_in_parallel_attn": 2},
    "falcon, as 40B by default": {"num_ln_in_parallel_attn": None},
    "flint, five layers as usual, biases, a dense layer": {
        "num_hidden_layers": 5,
        "layer_types": None,
        "mlp_only_layers": [1],
        "norm_topk_prob": False,
        "attention_bias": True,
    },
    "glm_moe_dsa, an index of as many tokens as there are": {"index_topk": 320, "index_topk_freq": 2},
    "gpt2, scores by layer": {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False},
    "gpt_bigcode, heads side by side": {"multi_query": False, "scale_attn_weights": False},
    "gpt_neo, three layers": {"num_layers": 3, "attention_types": [[["local", "global"], 1], [["local"], 1]]},
    "lfm3, six layers as usual": {"num_hidden_layers": 6, "layer_types": None, "rope_parameters": None},
    "lfm3, neither norms behind blocks nor gates, biases": {
        "use_sandwich_norm": False,
        "use_attention_gate": False,
        "attention_bias": True,
        "conv_bias": True,
    },
    "nanochat, no cap, biases": {"final_logit_softcapping": None, "attention_bias": True},
    "nanochat, a tied head below a cap": {"final_logit_softcapping": 0.5, "tie_word_embeddings": True},
    "opt, a narrow embedding": {"word_embed_proj_dim": 100, "activation_function": "gelu"},
    "opt, no biases, norms without weights": {"enable_bias": False, "layer_norm_elementwise_affine": False},
    "opt, as 350M, norms of sums": {"do_layer_norm_before": False, "word_embed_proj_dim": 100},
    "opt, norms of sums without weights": {"do_layer_norm_before": False, "layer_norm_elementwise_affine": False},
    "opt, no final norm": {"_remove_final_layer_norm": True},
    "openai-gpt, three layers, ReLU": {"n_layer": 3, "afn": "relu", "tie_word_embeddings": False},
    "xglm, an embedding as it is": {"scale_embedding": False, "activation_function": "relu", "ffn_dim": 250},
}
LLAMA4 = {
    "as it is": {},
    "four layers as usual, experts in every other, biases": {
        "num_hidden_layers": 4,
        "no_rope_layers": None,
        "moe_layers": None,
        "interleave_moe_layer_step": 2,
        "attention_bias": True,
        "use_qk_norm": False,
    },
    "experts everywhere, q that does not grow, a chunk as long as the context": {
        "num_hidden_layers": 3,
        "no_rope_layers": [],
        "no_rope_layer_interval": 2,
        "moe_layers": None,
        "attn_temperature_tuning": False,
        "attention_chunk_size": 320,
    },
}
SHARING = {
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 1,
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
}
TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize("form", FORMS)
def test_forms_agree_with_transformers(tmp_path, form):
    family = form.split(",")[0]
    assert_float32_graphs_agree(tmp_path, random_model({**FAMILIES[family].tiny, **FORMS[form]}, family))


@pytest.mark.parametrize("form", LLAMA4)
def test_llama4_agrees_with_transformers(tmp_path, form):
    assert_float32_graphs_agree(tmp_path, random_model({**FAMILIES["llama4"].tiny, **LLAMA4[form]}, "llama4_text"))


@pytest.mark.parametrize("changes", [{}, SHARING])
def test_gemma4_12b_agrees_with_transformers(tmp_path, changes):
    shape = {**FAMILIES["gemma4_unified"].tiny, **changes}
    assert_float32_graphs_agree(tmp_path, random_model(shape, "gemma4_unified_text"))


def test_the_language_model_of_a_llama4_with_images(tmp_path):
    torch.manual_seed(5)
    text = {**FAMILIES["llama4"].tiny, "initializer_range": 0.05, "eos_token_id": None, "pad_token_id": None}
    vision = {**TOWER, "vision_output_dim": 64, "projector_input_dim": 64, "projector_output_dim": 64, "image_size": 28}
    config = transformers.Llama4Config(text_config=text, vision_config=vision, attn_implementation="eager")
    model = transformers.Llama4ForConditionalGeneration(config).float().eval()
    random_weights(model)
    assert_float32_graphs_agree(tmp_path, model)


def test_tokens_of_another_chunk_change_nothing_in_transformers():
    """What a context beyond the chunk would need, and why it is refused."""
    changes = {"no_rope_layers": [1, 1], "attention_chunk_size": 16, "moe_layers": []}
    model = random_model({**FAMILIES["llama4"].tiny, **changes}, "llama4_text")
    one, other = (oracle_logits(model, [first, *range(40)])[-1] for first in (5, 6))
    assert (one == other).all()
