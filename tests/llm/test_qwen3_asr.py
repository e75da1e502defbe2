"""Qwen3-ASR: its encoder and its language model against transformers, from files of transformers and of Qwen."""

from __future__ import annotations

import json

import numpy as np
import pytest
from llm_packages import LoadedPackage, compile_package

import tcim_lite.runtime as rt

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")
pytest.importorskip("transformers.models.qwen3_asr", reason="the oracle has no Qwen3-ASR")
from oracle import assert_close, random_weights
from sound_models import QWEN_NAMES, check_language_model, check_missing_layer, rename_tensors
from tiny_sounds import QWEN3
from tiny_sounds import TEXT as SMALL

AUDIO = {**QWEN3, "output_dim": 128}
TEXT = {**SMALL, "model_type": "qwen3", "head_dim": 64, "tie_word_embeddings": True}
FRAMES = 500
SIZES = {"prefill_length": 32, "context_length": 128, "audio_frames": FRAMES}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(8)
    config = transformers.Qwen3ASRConfig(
        audio_config={"model_type": "qwen3_asr_encoder", **AUDIO}, text_config=TEXT, attn_implementation="eager"
    )
    made = transformers.Qwen3ASRForConditionalGeneration(config).eval()
    with torch.no_grad():
        for tensor in made.parameters():
            if tensor.dim() > 1:
                tensor.normal_(std=0.1 if tensor.dim() == 2 else 0.05)
    random_weights(made)
    return made


@pytest.fixture(scope="module", params=["transformers", "Qwen"])
def folder(request, model, tmp_path_factory):
    """A checkpoint as transformers writes it, or with the names that Qwen's own has."""
    path = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(path)
    if request.param == "Qwen":
        config = json.loads((path / "config.json").read_text())
        inner = {key: config.pop(key) for key in ("audio_config", "text_config")}
        inner["text_config"]["rope_scaling"] = {"rope_type": "default", "mrope_section": [12, 10, 10]}
        (path / "config.json").write_text(json.dumps({**config, "thinker_config": inner}))
        rename_tensors(path, QWEN_NAMES)
    return path


def heard(module, features: np.ndarray, length: int) -> np.ndarray:
    module.set_input(module.get_input_name(0), features)
    module.set_input(module.get_input_name(1), np.array([length], np.int32))
    module.run(True)
    return module.get_output(module.get_output_name(0)).numpy()[0]


def rows_of(length: int) -> int:
    """As the vendor's host counts them."""
    return ((((length % 100 - 1) // 2 + 1) - 1) // 2 + 1 - 1) // 2 + 1 + 13 * (length // 100)


def expected(model, features: np.ndarray, length: int) -> np.ndarray:
    mask = (torch.arange(FRAMES) < length)[None].long()
    inside = torch.tensor(features) * mask[:, None]
    with torch.no_grad():
        return model.model.get_audio_features(inside, mask, return_dict=True).pooler_output.numpy()


@pytest.mark.parametrize(
    ("quant", "limit"), [("float32", 2e-5), ("float16", 5e-3), ("w8a8h1_sefp", 0.1), ("w4a8h0_ssfp", 0.5)]
)
def test_the_encoder_is_that_of_transformers(model, folder, tmp_path, quant, limit):
    package = compile_package(folder, tmp_path, quant=quant, **SIZES)
    module = rt.load(package.folder / "qwen3_asr_encode.hmm")
    assert tuple(module.get_input_info(module.get_input_name(0)).shape) == (1, 20, FRAMES)
    features = np.random.default_rng(2).standard_normal((1, 20, FRAMES)).astype(np.float16).astype(np.float32)
    for length in (500, 499, 401, 400, 393, 200, 104, 100, 9, 1):
        want, got = expected(model, features, length), heard(module, features, length)
        assert got.shape == (65, 128)
        assert len(want) == rows_of(length)
        assert_close(got[: len(want)], want, limit, f"{length} frames")


def test_the_language_model_is_that_of_transformers(model, folder, tmp_path):
    loaded = LoadedPackage(compile_package(folder, tmp_path, quant="float32", **SIZES))
    check_language_model(model, loaded)


def test_a_layer_that_the_checkpoint_has_not_is_named(folder, tmp_path):
    check_missing_layer(folder, tmp_path, {"encoder_layers": 3}, "audio_tower.layers.2.self_attn_layer_norm.weight")


def ports(module) -> list[tuple[str, tuple[int, ...], str]]:
    found = []
    for way in ("input", "output"):
        for index in range(getattr(module, f"get_num_{way}s")()):
            name = getattr(module, f"get_{way}_name")(index)
            info = getattr(module, f"get_{way}_info")(name)
            found.append((name, tuple(info.shape), np.dtype(info.dtype).name))
    return found


def test_inputs_and_outputs_are_the_vendors(folder, tmp_path):
    """The vendor's C++ program finds the embeddings by their name and takes axis 1 of the logits for the vocabulary."""
    package = compile_package(folder, tmp_path, **SIZES)
    encoder = rt.load(package.folder / "qwen3_asr_encode.hmm")
    assert ports(encoder) == [
        ("input_features", (1, 20, FRAMES), "float16"),
        ("feature_lens", (1,), "int32"),
        ("hidden_state", (1, 65, 128), "float16"),
    ]
    for path, rows in ((package.prefill_path, 32), (package.decode_path, 1)):
        found = ports(rt.load(path))
        assert found[:3] == [
            ("input_embeds", (1, rows, 128), "float16"),
            ("valid_length", (1,), "int32"),
            ("current_length", (1,), "int32"),
        ]
        caches = [f"model_layers_{layer}_self_attn_{kind}cache_input" for kind in "kv" for layer in range(2)]
        assert found[3:7] == [(name, (1, 2, 128, 64), "float16") for name in caches]
        assert found[7:] == [("logits", (1, 331), "float16")]


def test_logits_of_several_rows_keep_their_axis(folder, tmp_path):
    package = compile_package(folder, tmp_path, all_logits=True, batch=2, argmax=True, **SIZES)
    assert ports(rt.load(package.prefill_path))[-1] == ("logits", (1, 32, 331), "float16")
    assert [port[1] for port in ports(rt.load(package.decode_path))[-3:]] == [(2, 1, 331), (2, 1, 1), (2, 1, 1)]
