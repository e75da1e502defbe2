"""Released checkpoints of Ministral 3 and Mistral Small: the language model inside them, against the whole model."""

import pytest
from oracle import assert_float32_graphs_agree, random_weights

from tcim_lite.models.families import FAMILIES

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'tcim-lite[test]'")
transformers = pytest.importorskip("transformers", reason="the oracle needs transformers")

pytestmark = pytest.mark.oracle

TOWER = {
    "model_type": "pixtral",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "head_dim": 16,
    "image_size": 56,
    "patch_size": 14,
}


@pytest.mark.parametrize("text", ["mistral", "ministral3"])
def test_the_language_model_agrees_with_transformers(tmp_path, text):
    torch.manual_seed(5)
    config = transformers.Mistral3Config(
        text_config={"model_type": text, "initializer_range": 0.05, "eos_token_id": None, **FAMILIES[text].tiny},
        vision_config=TOWER,
        image_token_index=330,
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    model = transformers.Mistral3ForConditionalGeneration(config).float().eval()
    random_weights(model)
    assert_float32_graphs_agree(tmp_path, model)
