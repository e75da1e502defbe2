"""Against transformers in float32: same checkpoint, same tokens, logits within the bound of docs/numerics.md."""

import numpy as np
import pytest
from family_forms import in_the_grid
from llm_packages import DEMO_CHECKPOINT, WITHOUT_AXES, LoadedPackage, compile_package, encoded_prompts
from oracle import assert_float32_graphs_agree, logit_bound, oracle_logits, random_model

from tcim_lite.models.common.profiles import profile_for
from tcim_lite.models.families import FAMILIES
from tcim_lite.models.weights.packing import dequantize
from tcim_lite.models.weights.quantize import QUANTIZERS

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'tcim-lite[test]'")
transformers = pytest.importorskip("transformers", reason="the oracle needs transformers")

pytestmark = pytest.mark.oracle


SHAPES = {
    "0.6B cut to 3 layers": {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 3,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 4096,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    },
    "untied, 5 query heads on 1": {
        "hidden_size": 128,
        "intermediate_size": 320,
        "num_hidden_layers": 3,
        "num_attention_heads": 5,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "vocab_size": 515,
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    },
    "biases, 3 heads of 80, llama3 rope": {
        "hidden_size": 192,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "head_dim": 80,
        "vocab_size": 300,
        "tie_word_embeddings": True,
        "attention_bias": True,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 128,
        },
    },
}

# Tests name a Qwen3 shape of the table above, or a family and one of these changes to its tiny config.
ODD_SIZES = "3 query heads on 1, inputs that fill no group or block"
CHANGES = {
    "as it is": {},
    ODD_SIZES: {
        "hidden_size": 180,
        "intermediate_size": 250,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 44,
    },
}
# Those that transformers has as language models of their own; MiniCPM-V 4.5 comes with its classes.
IN_TRANSFORMERS = [name for name in WITHOUT_AXES if not FAMILIES[name].nested and name != "minicpmv"]


@pytest.mark.parametrize("shape", SHAPES)
def test_float32_graphs_agree_with_transformers(tmp_path, shape):
    assert_float32_graphs_agree(tmp_path, random_model(SHAPES[shape]))


@pytest.mark.parametrize(
    ("family", "change"),
    [*((family, "as it is") for family in IN_TRANSFORMERS), *(in_the_grid(f, f, ODD_SIZES) for f in IN_TRANSFORMERS)],
)
def test_every_family_agrees_with_transformers(tmp_path, family, change):
    shape = {**FAMILIES[family].tiny, **CHANGES[change]}
    if "kv_lora_rank" in shape and change != "as it is":  # latents, and parts of heads, of odd sizes too
        shape |= {"num_key_value_heads": 3, "kv_lora_rank": 100, "qk_nope_head_dim": 44, "qk_rope_head_dim": 20}
        shape |= {"q_lora_rank": shape["q_lora_rank"] and 60, "v_head_dim": 36}
        del shape["head_dim"]
    if family == "codegen" and change != "as it is":  # whose heads are those of four devices
        shape |= {"num_attention_heads": 4, "hidden_size": 192}
    if family in (
        "biogpt",
        "codegen",
        "falcon",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "gpt_neox",
        "gptj",
        "helium",
        "olmoe",
        "openai-gpt",
        "opt",
        "stablelm",
        "xglm",
    ):  # whose heads are as wide as hidden states in transformers
        names = FAMILIES[family].spelled
        hidden, heads = (shape.get(key) or shape[names[key]] for key in ("hidden_size", "num_attention_heads"))
        shape["hidden_size"] = hidden - hidden % 8 * heads  # a quarter of a head turns
        if family == "falcon":  # whose class takes none
            shape.pop("head_dim", None)
            shape["num_kv_heads"] = shape.get("num_key_value_heads", shape["num_kv_heads"])
        else:
            shape["head_dim"] = shape["hidden_size"] // heads
    assert_float32_graphs_agree(tmp_path, random_model(shape, family))


ODD = {"hidden_size": 180, "intermediate_size": 250, "num_attention_heads": 3, "num_key_value_heads": 1}
STATES_LAST = {"layer_types": ["full_attention", "linear_attention"] * 2}
ATTENTION_ALONE = {"layer_types": ["attention"] * 4, "position_embedding_type": "rope", "shared_intermediate_size": 320}
BIASES = {"attention_bias": True, "mlp_bias": True, "mamba_proj_bias": True, "mamba_conv_bias": False}


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("granitemoehybrid", {}),
        ("granitemoehybrid", ODD | STATES_LAST | {"num_local_experts": 0, "mamba_n_heads": 6, "mamba_n_groups": 1}),
        ("granitemoehybrid", {"attention_bias": True, "mamba_proj_bias": True, "position_embedding_type": "rope"}),
        ("granitemoehybrid", ATTENTION_ALONE | {"num_local_experts": 0}),
        ("bamba", {}),
        ("bamba", ODD | BIASES | {"attn_layer_indices": [0], "mamba_n_heads": 12, "mamba_n_groups": 4}),
        ("falcon_h1", {}),
        ("falcon_h1", ODD | {"mamba_norm_before_gate": True, "mamba_n_groups": 1, "mamba_d_conv": 2}),
        ("falcon_h1", {"mamba_rms_norm": False, "mamba_conv_bias": False, "mamba_d_ssm": 160}),
        ("nemotron_h", {}),
        ("nemotron_h", ODD | {"use_bias": True, "use_conv_bias": False, "n_groups": 1, "norm_topk_prob": False}),
        ("nemotron_h", {"moe_latent_size": 100, "n_group": 4, "topk_group": 2}),
        ("nemotron_h", {"layers_block_type": ["full_attention", "mlp", "linear_attention"], "mlp_bias": True}),
        ("jamba", {}),
        ("jamba", ODD | {"num_experts": 1, "mamba_dt_rank": "auto", "mamba_proj_bias": True, "mamba_conv_bias": False}),
        ("jamba", {"attn_layer_period": 4, "attn_layer_offset": 2, "mamba_d_conv": 2, "expert_layer_period": 3}),
        ("mamba", {}),
        ("mamba", {"hidden_size": 90, "expand": 3, "time_step_rank": 7, "use_bias": True, "use_conv_bias": False}),
        ("falcon_mamba", {}),
        ("falcon_mamba", {"hidden_size": 90, "time_step_rank": 7, "mixer_rms_eps": 1e-3, "conv_kernel": 2}),
        ("kimi_linear", {}),
        ("kimi_linear", {**STATES_LAST, "q_lora_rank": 60, "linear_attn_config": {"head_dim": 24, "num_heads": 5}}),
        ("kimi_linear", {"mlp_layer_types": ["sparse", "dense"] * 2, "num_expert_group": 4, "topk_group": 2}),
        ("mamba2", {}),
        ("mamba2", {"num_heads": 6, "head_dim": 64, "n_groups": 1, "use_bias": True, "use_conv_bias": False}),
    ],
)
def test_state_space_layers_agree_with_transformers(tmp_path, family, changes):
    assert_float32_graphs_agree(tmp_path, random_model({**FAMILIES[family].tiny, **changes}, family))


@pytest.mark.parametrize(
    ("quant", "bound"), [("float16", 0.01), ("w8a8h1_sefp", 0.08), ("w4a8h0_ssfp", 0.5), ("mxfp4a8", 0.6)]
)
def test_quantised_graphs_stay_near_transformers(tmp_path, quant, bound):
    """Not a derived bound: what rounding of this size leaves of random weights. A wrong layout gives errors near 1."""
    model = random_model(SHAPES["untied, 5 query heads on 1"])
    model.save_pretrained(tmp_path / "hf")
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant=quant, prefill_length=32, context_length=128)
    tokens = np.random.default_rng(0).integers(0, 515, 100).tolist()
    got = LoadedPackage(package).prefill(tokens).astype(np.float64)
    want = oracle_logits(model, tokens)[-1].astype(np.float64)
    assert np.linalg.norm(got - want) / np.linalg.norm(want) < bound


def dequantised(weight: np.ndarray, quant: str) -> np.ndarray:
    """What the stored codes of a Linear weight [N, K] mean, in float32."""
    return dequantize(*QUANTIZERS[profile_for(quant).body_format](weight))


@pytest.mark.parametrize("quant", ["w8a8h1_sefp", "w4a8h0_ssfp", "mxfp4a8"])
def test_float_numerics_equal_the_oracle_on_dequantised_weights(tmp_path, monkeypatch, quant):
    """TCIM_LITE_NUMERICS=float leaves only the fp16 of the embedding, the RoPE table and the caches."""
    model = random_model(SHAPES["untied, 5 query heads on 1"])
    model.save_pretrained(tmp_path / "hf")
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant=quant, prefill_length=32, context_length=128)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "proj" in name or "lm_head" in name:
                kind = "w8a8h1_sefp" if "lm_head" in name else quant
                parameter.copy_(torch.from_numpy(dequantised(parameter.numpy(), kind)))
    monkeypatch.setenv("TCIM_LITE_NUMERICS", "float")
    tokens = np.random.default_rng(0).integers(0, 515, 100).tolist()
    loaded = LoadedPackage(package)
    loaded.prefill(tokens[:99])
    got = loaded.decode(tokens[99], 99)
    want = oracle_logits(model, tokens)[-1]
    assert np.linalg.norm(got - want) / np.linalg.norm(want) < 4e-3


def test_greedy_tokens_equal_transformers_on_the_demo_prompts(demo_package, demo_prompts):
    """Teacher forcing: our greedy reply is fed to the oracle, which must choose the same token at every step where its
    two best logits are further apart than the bound allows both to move."""
    model = transformers.Qwen3ForCausalLM.from_pretrained(DEMO_CHECKPOINT, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEMO_CHECKPOINT)
    loaded = LoadedPackage(demo_package("float32"))
    some = demo_prompts[::2]  # of every task; they are in order
    assert len(some) >= 100
    bound = logit_bound(model.config)
    compared = 0
    for index, prompt in enumerate(encoded_prompts(tokenizer, some)):
        reply = list(loaded.generate(prompt, max_new_tokens=64, stop_tokens={tokenizer.eos_token_id}))
        if loaded.stats.stopped_by == "eos":
            reply.append(tokenizer.eos_token_id)
        want = oracle_logits(model, prompt + reply[:-1])[len(prompt) - 1 :]
        for step, token in enumerate(reply):
            first, second = np.sort(want[step])[[-1, -2]]
            if first - second > 2 * bound * np.abs(want[step]).max():
                assert token == want[step].argmax(), f"prompt {index}, token {step}"
                compared += 1
    assert compared > 4 * len(some)
