"""GLM-ASR: its encoder and its language model against transformers."""

from __future__ import annotations

import numpy as np
import pytest
from llm_packages import LoadedPackage, compile_package

import tcim_lite.runtime as rt

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")
pytest.importorskip("transformers.models.glmasr", reason="the oracle has no GLM-ASR")
from oracle import assert_close, random_weights
from sound_models import check_language_model, check_missing_layer, rename_tensors
from tiny_sounds import GLM_ASR as AUDIO
from tiny_sounds import TEXT as SMALL

TEXT = {**SMALL, "model_type": "llama"}
FRAMES = 400
SIZES = {"prefill_length": 32, "context_length": 128, "audio_frames": FRAMES}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(4)
    config = transformers.GlmAsrConfig(
        audio_config={"model_type": "glmasr_encoder", **AUDIO}, text_config=TEXT, attn_implementation="eager"
    )
    made = transformers.GlmAsrForConditionalGeneration(config).eval()
    random_weights(made)
    return made


@pytest.fixture(scope="module", params=["", "model."])
def folder(request, model, tmp_path_factory):
    """A checkpoint as transformers writes it, or with the names that its class has."""
    path = tmp_path_factory.mktemp("glm")
    model.save_pretrained(path)
    if request.param:
        rename_tensors(path, {"language_model.model.": "model.language_model.", "": "model."})
    return path


@pytest.mark.parametrize(
    ("quant", "limit"), [("float32", 2e-5), ("float16", 5e-3), ("w8a8h1_sefp", 0.1), ("w4a8h0_ssfp", 0.5)]
)
def test_the_encoder_is_that_of_transformers(model, folder, tmp_path, quant, limit):
    package = compile_package(folder, tmp_path, quant=quant, **SIZES)
    module = rt.load(package.folder / "glmasr_encode.hmm")
    features = np.random.default_rng(2).standard_normal((1, 20, FRAMES)).astype(np.float16).astype(np.float32)
    with torch.no_grad():
        mask = torch.ones(1, FRAMES, dtype=torch.long)
        want = model.model.get_audio_features(torch.tensor(features), mask, return_dict=True).pooler_output.numpy()
    assert [module.get_input_name(i) for i in range(module.get_num_inputs())] == ["input_features"]
    module.set_input("input_features", features)
    module.run(True)
    got = module.get_output("audio_embeds").numpy()
    assert got.shape == (1, FRAMES // 8, 128)
    assert_close(got[0], want, limit, quant)


def test_the_language_model_is_that_of_transformers(model, folder, tmp_path):
    loaded = LoadedPackage(compile_package(folder, tmp_path, quant="float32", **SIZES))
    for module, rows in ((loaded.prefill_module, 32), (loaded.decode_module, 1)):
        assert module.get_input_info("input_embeds").shape == (1, rows, 128)
        assert module.get_output_info("logits").shape == (1, 331)
    check_language_model(model, loaded)


def test_a_layer_that_the_checkpoint_has_not_is_named(folder, tmp_path):
    check_missing_layer(folder, tmp_path, {"num_hidden_layers": 3}, "audio_tower.layers.2.input_layernorm.weight")
