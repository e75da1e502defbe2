"""Gemma in float32 against transformers: norms around blocks, two RoPEs, windows, capped logits, scaled states."""

import numpy as np
import pytest
from llm_packages import LoadedPackage, compile_package
from test_oracle import assert_close, assert_float32_graphs_agree, logit_bound, oracle_logits, random_weights

from tcim_lite.models.families import FAMILIES

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'tcim-lite[test]'")
transformers = pytest.importorskip("transformers", reason="the oracle needs transformers")

pytestmark = pytest.mark.oracle

FIXED = {"max_position_embeddings": 1024, "initializer_range": 0.05, "eos_token_id": None, "pad_token_id": None}
GEMMA3 = {
    "as it is": {},
    "three layers by their types, capped logits, a window longer than a block": {
        "num_hidden_layers": 3,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "sliding_window": 130,
        "final_logit_softcapping": 0.5,
        "tie_word_embeddings": False,
    },
}


def random_gemma(model_type, config):
    torch.manual_seed(5)
    config = transformers.AutoConfig.for_model(model_type, **FIXED | config)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    random_weights(model)
    return model


@pytest.mark.parametrize("change", GEMMA3)
def test_gemma3_agrees_with_transformers(tmp_path, change):
    model = random_gemma("gemma3_text", {**FAMILIES["gemma3"].tiny, **GEMMA3[change]})
    assert_float32_graphs_agree(tmp_path, model)


def test_the_language_model_of_a_gemma3_with_images(tmp_path):
    """The whole checkpoint, whose config leaves out what is the default, gives what its language model does."""
    text = {key: value for key, value in FAMILIES["gemma3"].tiny.items() if key != "tie_word_embeddings"}
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(5)
    config = transformers.Gemma3Config(text_config={**FIXED, **text}, vision_config={**vision, "image_size": 28})
    model = transformers.Gemma3ForConditionalGeneration._from_config(config, attn_implementation="eager").float().eval()
    random_weights(model)
    model.save_pretrained(tmp_path / "hf")
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant="float32", prefill_length=32, context_length=64)
    tokens = np.random.default_rng(0).integers(0, 331, 40).tolist()
    want = oracle_logits(model, tokens)
    loaded = LoadedPackage(package)
    assert_close(loaded.prefill(tokens[:39]), want[38], logit_bound(config.text_config), "prefill")
    assert_close(loaded.decode(tokens[39], 39), want[39], logit_bound(config.text_config), "decode")


def test_hidden_states_that_fp16_cannot_hold(tmp_path):
    """Norms behind blocks as large as those of released models: only the scale keeps hidden states in range."""
    model = random_gemma("gemma3_text", dict(FAMILIES["gemma3"].tiny))
    with torch.no_grad():
        for layer in model.model.layers:
            layer.post_feedforward_layernorm.weight.add_(1e5)
    tokens = np.random.default_rng(0).integers(0, 331, 20).tolist()
    model.save_pretrained(tmp_path / "hf")
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant="float16", prefill_length=32, context_length=64)
    want = oracle_logits(model, tokens)[-1]
    with torch.no_grad():
        hidden = model.model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    assert hidden[1].abs().max() > 65504
    got = LoadedPackage(package).prefill(tokens).astype(np.float64)
    # Not a derived bound: what fp16 leaves of such weights. Values that are clamped give errors near 1.
    assert np.linalg.norm(got - want) / np.linalg.norm(want) < 0.02
